"""Runs one of the two clients of the sglang package on the arguments given.

The compiled client is a Python extension of its own; it is loaded from its
file, since importing the package around it takes seconds.
"""
import glob
import importlib.util
import os
import sys
import sysconfig

which = sys.argv[1]
arguments = ["sglang-bench"] + sys.argv[2:]
if which == "rust":
    pattern = os.path.join(sysconfig.get_paths()["purelib"], "sglang/srt/rust_extensions/_bench*.so")
    files = glob.glob(pattern)
    if not files:
        sys.exit("no compiled client at " + pattern)
    spec = importlib.util.spec_from_file_location("_bench", files[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.run_argv(arguments)
else:
    import runpy

    sys.argv = arguments
    runpy.run_module("sglang.benchmark.serving", run_name="__main__")
