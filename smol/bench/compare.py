#!/usr/bin/env python3
"""Runs the engine interleaved with llama.cpp and PyTorch on the same weights.

    python3 smol/bench/compare.py [--threads 1,2] [--input 64,256] [--rounds 9]

Each runtime is a process of its own that stays loaded and idle while the
others run; one round is one run of each, in an order that moves on by one.
So slow phases of a shared machine hit all of them alike, and what is printed
are medians and, first of all, ratios of medians. Before each run there is a
pause: threads that wait in a loop go on doing so for a while after their run,
at the cost of the next. A run during which other processes were busy is made
again.

A run is one prompt and 32 tokens of greedy answer: "prefill" is the time to
the first token, "decode" the time per token of the others. All runtimes must
give equal ids, or the script says so and exits with 1.

The engine is built with go. The others take part where their packages are
installed in this Python: llama_cpp (llama-cpp-python, built from its source
package with CMAKE_ARGS=-DLLAVA_BUILD=OFF), and torch with transformers. Their
weights are what  python3 testdata/goldens.py -export DIR GGUF  writes; --weights
names that DIR.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def busy():
    """Seconds of CPU that all processes have used, 0 where /proc isn't."""
    try:
        with open("/proc/stat") as f:
            user, nice, system, _, _, irq, soft, steal = map(int, f.readline().split()[1:9])
    except OSError:
        return 0
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def used(pid):
    """Seconds of CPU that process pid has used."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """A process that answers one line of JSON for each line it gets."""

    def __init__(self, name, command, log):
        self.name = name
        self.runs = {}
        self.disturbed = 0
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.load_ns = self.read()["load_ns"]
        self.peak = 0

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare: {self.name} ended with code {self.process.wait()}; its output is in {log.name}")
        return json.loads(line)

    def undisturbed(self, prompt, tokens, args):
        """Runs until nobody else used more of the CPUs than allowed."""
        for _ in range(args.tries):
            time.sleep(args.pause)
            begin, before, own = time.monotonic(), busy(), used(self.process.pid)
            answer = self.run(prompt, tokens)
            took = time.monotonic() - begin
            others = (busy() - before) - (used(self.process.pid) - own)
            if others <= args.others * took + 0.02:  # two ticks of the counters
                return answer
            self.disturbed += 1
        return answer

    def run(self, prompt, tokens):
        self.process.stdin.write(json.dumps({"prompt": prompt, "tokens": tokens}) + "\n")
        self.process.stdin.flush()
        answer = self.read()
        self.peak = max(self.peak, answer["peak_bytes"])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def serve(load):
    """The side of a worker: load() returns a function from (prompt, tokens) to
    a generator of ids."""
    begin = time.perf_counter_ns()
    generate = load()
    print(json.dumps({"load_ns": time.perf_counter_ns() - begin}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        begin = time.perf_counter_ns()
        ids = generate(job["prompt"], job["tokens"])
        first = [next(ids)]
        middle = time.perf_counter_ns()
        rest = list(ids)
        end = time.perf_counter_ns()
        print(json.dumps({
            "prefill_ns": middle - begin,
            "decode_ns": end - middle,
            "ids": first + rest,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }), flush=True)


def llama(weights, threads):
    import ctypes
    import llama_cpp
    import numpy as np

    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    model = llama_cpp.Llama(
        str(weights / "f32.gguf"), n_ctx=2048, n_batch=2048, n_ubatch=512,
        n_threads=threads, n_threads_batch=threads, verbose=False, type_k=0, type_v=0)
    ctx, vocabulary = model.ctx, model.n_vocab()
    llama_cpp.llama_set_n_threads(ctx, threads, threads)

    def decode(ids):
        array = (ctypes.c_int32 * len(ids))(*ids)
        if llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(array, len(ids))):
            raise RuntimeError("llama_decode failed")
        logits = llama_cpp.llama_get_logits_ith(ctx, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, (vocabulary,))))

    def generate(prompt, tokens):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(ctx), True)
        ids = prompt
        for _ in range(tokens):
            ids = [decode(ids)]
            yield ids[0]

    generate.keep = (quiet, model)
    return generate


def pytorch(weights, threads):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(
        weights, dtype=torch.float32, attn_implementation="eager").eval()

    def generate(prompt, tokens):
        with torch.inference_mode():
            ids, cache = torch.tensor([prompt]), None
            for _ in range(tokens):
                out = model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
                cache = out.cache
                ids = out.logits[:, -1].argmax(-1, keepdim=True)
                yield int(ids)

    return generate


RUNTIMES = {"llama.cpp": (llama, ["llama_cpp", "numpy"]),
            "pytorch": (pytorch, ["torch", "transformers"])}


def installed(modules):
    return [m for m in modules if importlib.util.find_spec(m) is None]


def numbers(text):
    return [int(n) for n in text.split(",")]


def variant(text):
    name, _, flags = text.partition("=")
    return name, flags.split()


def prompts(path, lengths):
    """The first measured prompt of each length in the corpus."""
    found = {}
    with open(path, encoding="utf-8") as corpus:
        for line in corpus:
            p = json.loads(line)
            if not p["warmup"]:
                found.setdefault(p["input"], p["ids"])
    return {n: found[n] for n in lengths}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--threads", type=numbers, default=[1, 2])
    a.add_argument("--input", type=numbers, default=[64, 256], help="lengths of prompts in the corpus")
    a.add_argument("--tokens", type=int, default=32, help="of each answer")
    a.add_argument("--rounds", type=int, default=9, help="after one that is thrown away")
    a.add_argument("--pause", type=float, default=0.3, help="seconds before each run")
    a.add_argument("--others", type=float, default=0.1, help="of one CPU, the most that other processes may use during a run")
    a.add_argument("--tries", type=int, default=10, help="for a run that others disturbed; the last one counts anyhow")
    a.add_argument("--model", type=pathlib.Path, default=ROOT / "smol/native/v1/model")
    a.add_argument("--corpus", type=pathlib.Path, default=ROOT / "testdata/corpus.jsonl")
    a.add_argument("--weights", type=pathlib.Path, help="directory of the other runtimes' files")
    a.add_argument("--engine", type=variant, action="append", metavar="NAME=FLAGS",
                   help="run the engine with these flags, under this name; may be repeated")
    a.add_argument("--without", action="append", default=[], choices=list(RUNTIMES))
    a.add_argument("--json", type=pathlib.Path, help="write every run there")
    a.add_argument("--worker", choices=list(RUNTIMES), help=argparse.SUPPRESS)
    args = a.parse_args()
    if args.worker:
        load = RUNTIMES[args.worker][0]
        return serve(lambda: load(args.weights, args.threads[0]))

    others = []
    for name, (_, modules) in RUNTIMES.items():
        if name in args.without:
            continue
        if not args.weights:
            print(f"without {name}: no --weights")
            continue
        if missing := installed(modules):
            print(f"without {name}: not installed here: {', '.join(missing)}")
            continue
        others.append(name)
    work = pathlib.Path(tempfile.mkdtemp(prefix="compare-"))
    binary = work / "engine"
    subprocess.run(["go", "build", "-o", binary, "./smol/bench/engine"], cwd=ROOT, check=True)
    texts = prompts(args.corpus, args.input)
    engines = args.engine or [("engine", [])]

    different, report = False, []
    for threads in args.threads:
        with open(work / "workers.log", "a") as log:
            workers = [Worker(name, [binary, "-model", args.model, "-threads", str(threads), *flags], log)
                       for name, flags in engines]
            workers += [Worker(name, [sys.executable, __file__, "--worker", name, "--threads", str(threads),
                                      "--weights", args.weights], log) for name in others]
            for length, prompt in texts.items():
                for round_ in range(-1, args.rounds):
                    shift = round_ % len(workers)
                    ids = None
                    for w in workers[shift:] + workers[:shift]:
                        r = w.undisturbed(prompt, args.tokens, args)
                        ids = ids or r["ids"]
                        if r["ids"] != ids:
                            different = True
                            at = next(i for i, (x, y) in enumerate(zip(r["ids"], ids)) if x != y)
                            print(f"threads={threads} input={length}: ids of {w.name} differ at token {at}: {r['ids'][at]}, others {ids[at]}")
                        if round_ >= 0:
                            w.runs.setdefault(length, []).append(
                                (r["prefill_ns"] / 1e6, r["decode_ns"] / 1e6 / (args.tokens - 1)))
            for w in workers:
                w.close()
        table(threads, texts, workers)
        report.append({"threads": threads, "workers": {
            w.name: {"load_ns": w.load_ns, "peak_bytes": w.peak, "runs_ms": w.runs} for w in workers}})
    if args.json:
        args.json.write_text(json.dumps(report))
    return 1 if different else 0


def table(threads, lengths, workers):
    """One line for each runtime: median (best) in ms, and for the first one
    the ratio of its median to each other's below it."""
    columns = [(n, k) for n in lengths for k in (0, 1)]
    head = ["load s", "peak MB"] + [f"{('prefill', 'decode')[k]}/{n} ms" for n, k in columns]
    print(f"\nthreads={threads}, medians (best) of {len(next(iter(workers[0].runs.values())))} rounds")
    print(f"{'':24}" + "".join(f"{h:>19}" for h in head))
    first = {c: statistics.median(r[c[1]] for r in workers[0].runs[c[0]]) for c in columns}
    if n := sum(w.disturbed for w in workers):
        print(f"{n} runs were disturbed by other processes and made again")
    for w in workers:
        cells = [f"{w.load_ns / 1e9:.2f}", f"{w.peak / 1e6:.0f}"]
        ratios = [f"{workers[0].load_ns / w.load_ns:.2f}x", f"{workers[0].peak / w.peak:.2f}x"]
        for c in columns:
            values = [r[c[1]] for r in w.runs[c[0]]]
            cells.append(f"{statistics.median(values):.1f} ({min(values):.1f})")
            ratios.append(f"{first[c] / statistics.median(values):.2f}x")
        print(f"{w.name:24}" + "".join(f"{c:>19}" for c in cells))
        if w is not workers[0]:
            print(f"{'  ' + workers[0].name + ' to it':24}" + "".join(f"{r:>19}" for r in ratios))


if __name__ == "__main__":
    sys.exit(main())
