"""Starts a server that others wrote, with SmolLM2-135M-Instruct in FP32.

    python serve.py llamaserver DIR PORT [THREADS]     llama.cpp's server, out of xllamacpp
    python serve.py transformers DIR PORT [THREADS]    Hugging Face's transformers serve

DIR is what weights.py wrote. The server listens on 127.0.0.1:PORT, computes
with so many threads, by default one, and is ready when GET /health answers
200. It ends when standard input ends, so that it outlives nobody who started
it through a pipe.

Several threads wait for each other by spinning: with other work on the
machine's CPUs, a token that takes 20 ms can take seconds.
"""

import os
import sys
import threading
from pathlib import Path

HOST = "127.0.0.1"
MODEL = "SmolLM2-135M-Instruct"


def end_with_stdin():
    """Ends the process, at once, when standard input ends."""

    def wait():
        while os.read(0, 4096):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def llamaserver(directory, port, threads):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(directory / "f32.gguf")
    params.model_alias = {MODEL}
    params.hostnames = [HOST]
    params.port = port
    params.n_ctx = 8192
    params.n_parallel = 2
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    # The cache in FP32, too: the FP16 of the default is another computation.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(params)  # serves from threads of its own
    print(f"listening on {server.listening_address}", flush=True)
    threading.Event().wait()


def transformers(directory, port, threads):
    # Before anything is imported that reads them.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["OMP_NUM_THREADS"] = str(threads)
    from transformers.cli.transformers import main

    os.chdir(directory)  # the model is called as its path is
    sys.argv = ["transformers", "serve", MODEL, "--device", "cpu", "--dtype", "float32",
                "--host", HOST, "--port", str(port)]
    main()


def run():
    servers = {f.__name__: f for f in (llamaserver, transformers)}
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in servers or not all(a.isdigit() for a in sys.argv[3:]):
        sys.exit(__doc__)
    directory = Path(sys.argv[2]).resolve()
    if not directory.is_dir():
        sys.exit(f"serve.py: {directory} isn't there: weights.py writes it")
    end_with_stdin()
    servers[sys.argv[1]](directory, int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) == 5 else 1)


if __name__ == "__main__":
    run()
