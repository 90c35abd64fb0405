#!/usr/bin/env python3
"""Makes tiny.json: what the engine must say of the model that graph.WriteTiny writes.

    go test ./smol -run '^$' -tiny DIR       # writes the model to DIR
    python3 smol/testdata/tiny.py DIR > smol/testdata/tiny.json

Needs numpy and tokenizers. The weights don't come from DIR: they are drawn
here anew, from the definition of Go's PCG and of the distributions in
graph/tiny.go, so an error in how the writer lays them out shows. The forward
pass is plain numpy in float64, without a cache: each token of an answer is
computed from the whole sequence before it. From DIR come the tokenizer, which
Hugging Face's own library runs, and the hash that tells whether tiny.json
belongs to the model at hand.
"""
import hashlib
import json
import math
import pathlib
import random
import sys

import numpy as np
import tokenizers

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM = 2, 96, 256, 6, 2, 16
VOCABULARY, THETA, EPS, SEED = 512, 10000.0, 1e-5, 1
ANSWER = 24
LEAST_MARGIN = 1e-3  # of a best logit over the second: FP32's noise is far below

M64, M128 = (1 << 64) - 1, (1 << 128) - 1


def pcg(seed1, seed2):
    """PCG-DXSM with 128 bits of state, as in Go's math/rand/v2."""
    state = seed1 << 64 | seed2
    multiplier = 2549297995355413924 << 64 | 4865540595714422341
    increment = 6364136223846793005 << 64 | 1442695040888963407
    while True:
        state = (state * multiplier + increment) & M128
        high, low = state >> 64, state & M64
        high ^= high >> 32
        high = high * 0xDA942042E4DD58B5 & M64
        high ^= high >> 48
        yield high * (low | 1) & M64


def fnv1a(text):
    h = 0xCBF29CE484222325
    for b in text.encode():
        h = (h ^ b) * 0x100000001B3 & M64
    return h


def weight(name, *dims):
    mean, by = 0.0, lambda n: 1 / math.sqrt(n)
    if name == "model.embed_tokens.weight":
        deviation = 0.1
    elif name == "model.norm.weight" or "layernorm" in name:
        mean, deviation = 1.0, 0.1
    elif "q_proj" in name or "k_proj" in name:
        deviation = 1.5 * by(HIDDEN)
    elif "o_proj" in name:
        deviation = 2 * by(HEADS * HEAD_DIM)
    elif "down_proj" in name:
        deviation = 2 * by(FFN)
    else:
        deviation = by(HIDDEN)
    half, stream = deviation * math.sqrt(3), pcg(SEED, fnv1a(name))
    values = [mean + half * (((next(stream) >> 40) - (1 << 23)) / (1 << 23)) for _ in range(math.prod(dims))]
    return np.array(values, np.float32).astype(np.float64).reshape(dims)


def model():
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    w = {"embed": weight("model.embed_tokens.weight", VOCABULARY, HIDDEN), "norm": weight("model.norm.weight", HIDDEN)}
    for l in range(LAYERS):
        for part, dims in {
            "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
            "self_attn.q_proj": (q, HIDDEN), "self_attn.k_proj": (kv, HIDDEN), "self_attn.v_proj": (kv, HIDDEN),
            "self_attn.o_proj": (HIDDEN, q),
            "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN), "mlp.down_proj": (HIDDEN, FFN),
        }.items():
            w[l, part] = weight(f"model.layers.{l}.{part}.weight", *dims)
    return w


def rms(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def rotate(x):
    """x: [head, position, dim]; halves are rotated against each other."""
    half = HEAD_DIM // 2
    frequency = np.array([np.float32(1 / THETA ** (2 * i / HEAD_DIM)) for i in range(half)], np.float32)
    angle = (np.arange(x.shape[1], dtype=np.float32)[:, None] * frequency).astype(np.float64)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def heads(x, n):
    return x.reshape(len(x), n, HEAD_DIM).swapaxes(0, 1)


def logits(w, ids):
    x = w["embed"][ids]
    ahead = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for l in range(LAYERS):
        h = rms(x, w[l, "input_layernorm"])
        q = rotate(heads(h @ w[l, "self_attn.q_proj"].T, HEADS))
        k = rotate(heads(h @ w[l, "self_attn.k_proj"].T, KV_HEADS)).repeat(HEADS // KV_HEADS, 0)
        v = heads(h @ w[l, "self_attn.v_proj"].T, KV_HEADS).repeat(HEADS // KV_HEADS, 0)
        score = q @ k.swapaxes(1, 2) / math.sqrt(HEAD_DIM) + ahead
        score = np.exp(score - score.max(-1, keepdims=True))
        score /= score.sum(-1, keepdims=True)
        x = x + (score @ v).swapaxes(0, 1).reshape(len(ids), -1) @ w[l, "self_attn.o_proj"].T
        h = rms(x, w[l, "post_attention_layernorm"])
        gate = h @ w[l, "mlp.gate_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[l, "mlp.up_proj"].T)) @ w[l, "mlp.down_proj"].T
    return rms(x[-1], w["norm"]) @ w["embed"].T


def answer(w, prompt):
    """The greedy answer and its least margin."""
    ids, least = list(prompt), math.inf
    for _ in range(ANSWER):
        row = logits(w, ids)
        second, first = np.sort(row)[-2:]
        least = min(least, first - second)
        ids.append(int(row.argmax()))
    return ids[len(prompt):], least


def answers(w):
    """Prompts of all kinds of lengths with their answers. One whose answer was
    a close call, which FP32 may decide otherwise, is drawn again."""
    pick = random.Random(1)
    for length in (1, 2, 3, 16, 17, 64, 65, 100, 256):
        margin = 0
        while margin < LEAST_MARGIN:
            prompt = [pick.randrange(VOCABULARY) for _ in range(length)]
            ids, margin = answer(w, prompt)
        yield {"prompt": prompt, "ids": ids, "margin": round(float(margin), 4)}


TEXTS = [
    "What is the use of a bridge that nobody crosses?",
    "the the  the\n\n\tthe",
    "1234567890 3.14",
    "né à Zürich, 猫は眠っている 🙂",
    "<|im_start|>user\nthe kettle<|im_end|>\n",
    "it's they've I'LL don't",
    " leading and trailing ",
    "\x01\x02\x7f\u00a0\u2028\ufeff",
    "x",
]


def main():
    directory = pathlib.Path(sys.argv[1])
    manifest = json.loads((directory / "model.json").read_text())
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    texts = [{"text": t, "ids": library.encode(t, add_special_tokens=False).ids} for t in TEXTS]
    files = {f["name"]: f["sha256"] for f in manifest["files"]}
    head = {
        "made_by": f"tiny.py with numpy {np.__version__}, tokenizers {tokenizers.__version__}",
        "data_sha256": files["model.onnx.data"],
        "tokenizer_sha256": files["tokenizer.json"],
    }
    lines = [json.dumps(k) + ": " + json.dumps(v) for k, v in head.items()]
    for name, rows in (("answers", list(answers(model()))), ("texts", texts)):
        lines.append(json.dumps(name) + ": [\n" + ",\n".join(json.dumps(r, ensure_ascii=True) for r in rows) + "\n]")
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
