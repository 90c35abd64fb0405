"""Makes goldens.json: what a greedy decode of each prompt must give.

    python testdata/goldens.py GGUF                  checks goldens.json, or exits 1
    python testdata/goldens.py -write GGUF           makes it anew
    python testdata/goldens.py -llama F32GGUF GGUF   holds llama.cpp against it as well
    python testdata/goldens.py -export DIR GGUF      only writes the weights that were used:
                                                     a folder for transformers, and f32.gguf

The reference is transformers' Llama on PyTorch, eager attention, FP32, CPU,
with the weights of the GGUF file dequantized to FP32 (smollm2.py). Greedy is
argmax over the whole vocabulary; the end-of-text token is neither banned nor
does it end the answer, which is what ignore_eos asks of a server.

Every prompt is decoded twice: token by token with a KV cache, and by one run
over prompt and answer together; the two must agree. The margin of a step is
the highest logit less the second highest: an implementation whose logits
differ from these by less than half of the smallest margin must give the same
ids. How far the cached logits lie from the recomputed ones is kept as a
measure of FP32's own noise.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import smollm2

HERE = Path(__file__).parent
CORPUS = HERE / "corpus.jsonl"
GOLDENS = HERE / "goldens.json"
STEPS = 24


def load(source):
    """Returns transformers' model with the source's weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM._from_config(
        LlamaConfig(**source.config()), attn_implementation="eager", dtype=torch.float32)
    state = {k: torch.from_numpy(w) for k, w in source.state_dict().items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or missing not in ([], ["lm_head.weight"]):
        raise ValueError(f"{source.path}: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model.eval()


def decode(model, prompt):
    """Returns STEPS greedy ids and the logits of each step, [STEPS, vocabulary]."""
    import torch

    with torch.inference_mode():
        ids, rows, cache, step = [], [], None, torch.tensor([prompt])
        for _ in range(STEPS):
            out = model(input_ids=step, cache=cache, use_cache=True, logits_to_keep=1)
            cache = out.cache
            rows.append(out.logits[0, -1].numpy())
            ids.append(int(rows[-1].argmax()))
            step = torch.tensor([ids[-1:]])
    return ids, np.stack(rows)


def recompute(model, prompt, ids):
    """Returns the logits of each step from a single run without a cache."""
    import torch

    with torch.inference_mode():
        out = model(input_ids=torch.tensor([prompt + ids[:-1]]), use_cache=False,
                    logits_to_keep=STEPS)
    return out.logits[0].numpy()


def margins(rows):
    """Returns for each row its highest value less its second highest."""
    top = np.partition(rows, -2, axis=1)[:, -2:]
    return top[:, 1] - top[:, 0]


def goldens(source, prompts):
    """Returns what goldens.json holds."""
    import torch
    import transformers

    model = load(source)
    eos = source.config()["eos_token_id"]
    answers, noise = {}, 0.0
    for p in prompts:
        ids, rows = decode(model, p["ids"])
        again = recompute(model, p["ids"], ids)
        if again.argmax(axis=1).tolist() != ids:
            raise ValueError(f"{p['id']}: ids differ with and without the cache")
        noise = max(noise, float(np.abs(again - rows).max()))
        gaps = margins(rows)
        answers[p["id"]] = {
            "ids": ids,
            "min_margin": round(float(gaps.min()), 4),
            "min_margin_step": int(gaps.argmin()),
            "holds_eos": eos in ids,
        }
        print(f"{p['id']}: margin {gaps.min():.4f} at step {gaps.argmin()}, "
              f"cache noise so far {noise:.1e}", file=sys.stderr)
    return {
        "corpus_sha256": hashlib.sha256(CORPUS.read_bytes()).hexdigest(),
        "steps": STEPS,
        "models": {source.sha256: {
            "model_input_sha256": source.sha256,
            "model_input": "SmolLM2-135M-Instruct.Q4_1.gguf",
            "precision": "fp32, dequantized from Q4_1",
            "implementation": "transformers LlamaForCausalLM, eager attention, PyTorch, CPU",
            "versions": {
                "transformers": transformers.__version__,
                "torch": torch.__version__,
                "tokenizers": smollm2.tokenizers.__version__,
                "gguf": smollm2.version("gguf"),
                "numpy": np.__version__,
            },
            "dtype": "float32",
            "cache_noise": float(f"{noise:.1e}"),
            "answers": answers,
        }},
    }


def render(g):
    """Returns the file's bytes: JSON with one line for each answer."""
    text = json.dumps(g, indent=1)
    for model in g["models"].values():
        for a in model["answers"].values():
            text = text.replace(json.dumps(a, indent=1).replace("\n", "\n" + " " * 4), json.dumps(a))
    return (text + "\n").encode()


def llama(path, prompts, answers):
    """Yields every prompt for which llama.cpp gives other ids than the goldens.

    Its ids come one argmax at a time out of the raw logits, so that no
    sampler takes part.
    """
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, n_threads=2, n_threads_batch=2,
                            type_k=0, type_v=0, verbose=False)  # 0: F32
    for p in prompts:
        want = answers[p["id"]]["ids"]
        if model.tokenize(p["text"].encode(), add_bos=False, special=True) != p["ids"]:
            yield f"{p['id']}: llama.cpp tokenizes its text otherwise"
        model.reset()
        step, ids = p["ids"], []
        for _ in range(STEPS):
            model.eval(step)
            row = np.ctypeslib.as_array(
                llama_cpp.llama_get_logits_ith(model.ctx, -1), shape=(model.n_vocab(),))
            ids.append(int(row.argmax()))
            step = ids[-1:]
        if ids != want:
            yield f"{p['id']}: llama.cpp gives {ids}, want {want}"
    print(f"llama-cpp-python {llama_cpp.__version__}: held against {len(answers)} answers",
          file=sys.stderr)


def export(source, directory):
    """Writes the FP32 weights for transformers and for llama.cpp."""
    from safetensors.numpy import save_file

    directory.mkdir(parents=True, exist_ok=True)
    save_file(source.state_dict(), directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(source.config(), indent=1) + "\n")
    source.tokenizer().save(str(directory / "tokenizer.json"))
    source.write_f32(directory / "f32.gguf")


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("-write", action="store_true", help="make goldens.json anew")
    args.add_argument("-llama", metavar="F32GGUF", help="a file that -export wrote")
    args.add_argument("-export", metavar="DIR", type=Path, help="write the FP32 weights to DIR")
    args.add_argument("gguf", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    args = args.parse_args()

    source = smollm2.Source(args.gguf)
    if args.export:
        export(source, args.export)
        return
    prompts = smollm2.read_corpus(CORPUS)
    want = goldens(source, prompts)
    if args.write:
        GOLDENS.write_bytes(render(want))
    got = json.loads(GOLDENS.read_bytes())
    bad = []
    if got["corpus_sha256"] != want["corpus_sha256"]:
        bad.append(f"made for corpus {got['corpus_sha256']}, it is now {want['corpus_sha256']}")
    model = got["models"].get(source.sha256)
    if model is None:
        bad.append(f"holds no answers for model {source.sha256}")
    else:
        answers = want["models"][source.sha256]["answers"]
        for ident in sorted(answers.keys() | model["answers"].keys()):
            a, b = (m.get(ident, {}).get("ids") for m in (model["answers"], answers))
            if a != b:
                bad.append(f"{ident}: ids {a}, want {b}")
        if args.llama and not bad:
            bad += llama(args.llama, prompts, answers)
    for fault in bad:
        print(f"goldens: {GOLDENS.name}: {fault}", file=sys.stderr)
    if bad:
        sys.exit(1)
    print(f"{len(prompts)} prompts, {STEPS} ids each")


if __name__ == "__main__":
    main()
