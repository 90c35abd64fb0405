"""Checks corpus.jsonl, or derives its ids from its texts anew.

    python testdata/corpus.py GGUF          says nothing but a summary, or exits 1
    python testdata/corpus.py -write GGUF   rewrites input, ids and sha256

The tokenizer is built from the GGUF file's own metadata (smollm2.py) and runs
in the Python binding of Hugging Face's tokenizers. To change a prompt, edit
its text in corpus.jsonl and run with -write; a prompt whose length is not the
one in its id is an error in both modes.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import smollm2

CORPUS = Path(__file__).parent / "corpus.jsonl"
ORDER = [f"{n}-{k}" for n in (64, 256) for k in ("warmup", 0, 1, 2, 3, 4, 5)]


def derive(tok, ident, text):
    """Returns the corpus line of a text, without its newline.

    It has the bytes that Go's encoding/json gives for the same struct: keys
    in the order of its fields, no spaces, non-ASCII as it is. That holds
    since faults refuses the characters which the two encoders escape
    differently.
    """
    ids = tok.encode(text).ids
    return json.dumps({
        "id": ident,
        "input": len(ids),
        "warmup": ident.endswith("-warmup"),
        "text": text,
        "ids": ids,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }, ensure_ascii=False, separators=(",", ":"))


def faults(tok, prompts):
    """Yields every rule that the prompts break."""
    if [p["id"] for p in prompts] != ORDER:
        yield f"ids {[p['id'] for p in prompts]}, want {ORDER}"
    firsts = {}
    for p in prompts:
        ident, text = p["id"], p["text"]
        ids = tok.encode(text).ids
        if len(ids) != int(ident.split("-")[0]):
            yield f"{ident}: {len(ids)} tokens"
        if tok.decode(ids, skip_special_tokens=False) != text:
            yield f"{ident}: its ids don't decode to its text"
        if odd := [c for c in text if c in "<>&\u2028\u2029\x7f" or c < " " and c not in "\n\t"]:
            yield f"{ident}: holds {odd}, which JSON encoders write in different ways"
        if ids[0] in firsts:
            yield f"{ident}: first token {ids[0]} is also that of {firsts[ids[0]]}"
        firsts[ids[0]] = ident


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("-write", action="store_true", help="derive input, ids and sha256 anew")
    args.add_argument("gguf", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    args = args.parse_args()

    tok = smollm2.Source(args.gguf).tokenizer()
    prompts = smollm2.read_corpus(CORPUS)
    bad = list(faults(tok, prompts))
    want = "".join(derive(tok, p["id"], p["text"]) + "\n" for p in prompts).encode()
    if args.write and not bad:
        CORPUS.write_bytes(want)
    for p, line, got in zip(prompts, want.splitlines(), CORPUS.read_bytes().splitlines()):
        if line != got:
            bad.append(f"{p['id']}: the line isn't the one that its text gives")
    if CORPUS.read_bytes() != want and not bad:
        bad.append("lines don't end in one newline each")
    for fault in bad:
        print(f"corpus: {CORPUS.name}: {fault}", file=sys.stderr)
    if bad:
        sys.exit(1)
    print(f"{len(prompts)} prompts, {len(want)} bytes, sha256 {hashlib.sha256(want).hexdigest()}")


if __name__ == "__main__":
    main()
