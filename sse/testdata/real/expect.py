#!/usr/bin/env python3
"""Writes the member "expect" of each recording here: what a client must make
of it. It shares nothing with the client: Python's json, no stream parser but a
split at blank lines, and each event looked for in the raw bytes to learn which
read brought its end. Run it in this directory; it rewrites the files in place.
"""
import json
import pathlib


def body(raw):
    head, _, rest = raw.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return head, rest
    out = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            return head, out
        out, rest = out + rest[:n], rest[n + 2:]


def read_of(recording, raw, event, start):
    """The index of the read that brought the end of an event, and that end."""
    at = raw.index(event + b"\n\n", start) + len(event) + 2
    total = 0
    for i, (_, n) in enumerate(recording["reads"]):
        total += n
        if total >= at:
            return i, at


def words(status_body):
    o = json.loads(status_body)
    if isinstance(o.get("error"), dict):
        return o["error"]["message"]
    if isinstance(o.get("error"), str):
        return o["error"]
    if isinstance(o.get("detail"), str):
        return o["detail"]
    return None  # a structure: the words of it that matter are in the test


def expect(recording):
    raw = recording["raw"].encode()
    head, data = body(raw)
    status = int(head.split()[1])
    want = {"status": status}
    if status != 200:
        want["class"], want["message"] = "status", words(data)
        return want
    if b"text/event-stream" not in head:
        want["class"] = "reply"
        return want
    kinds, text, thought, ids, event_ids, reads, at = "", "", "", [], [], [], 0
    usage = finish = prompt_ids = None
    for event in data.split(b"\n\n"):
        if not event.strip():
            continue
        read, at = read_of(recording, raw, event, at)
        payload = event.removeprefix(b"data: ")
        kind, n = "o", 0
        o = None if payload == b"[DONE]" else json.loads(payload)
        if payload == b"[DONE]":
            kind = "d"
        elif o is None:
            pass
        elif "error" in o:
            kind = "e"
            want.setdefault("class", "server")
            want.setdefault("message", words(payload))
        else:
            prompt_ids = prompt_ids or o.get("prompt_token_ids")
            for c in o.get("choices", []):
                if c["index"] != 0:
                    want.setdefault("class", "stream")
                    want.setdefault("message", "event %d has choice %d, though one answer was asked for" % (len(kinds), c["index"]))
                    continue
                piece = c.get("text") or c.get("delta", {}).get("content") or ""
                more = c.get("token_ids") or []
                prompt_ids = prompt_ids or c.get("prompt_token_ids")
                text += piece
                thinking = c.get("delta", {}).get("reasoning_content") or c.get("delta", {}).get("reasoning") or ""
                thought += thinking
                calls = [x["function"] for x in c.get("delta", {}).get("tool_calls") or []]
                ids += more
                n += len(more)
                finish = c.get("finish_reason") or finish
                if piece or more:
                    kind = "c"
                elif thinking:
                    kind = "r"
                elif any(x.get("name") or x.get("arguments") for x in calls):
                    kind = "t"
            usage = o.get("usage") or usage
        if kind in "crt":
            reads.append(read)
        kinds += kind
        event_ids.append(n)
    if "class" not in want and finish is None and "d" not in kinds:
        want["class"], want["message"] = "stream", "the stream ended without a finish reason or [DONE]"
    if "class" not in want and not reads:
        want["class"], want["message"] = "empty", "the stream ended properly but carried no token"
    want.update(kinds=kinds, text=text, reasoning=thought, finish=finish or "")
    if reads:
        want.update(first_read=reads[0], last_read=reads[-1])
    if ids:
        want.update(ids=ids, event_ids=event_ids)
    if prompt_ids:
        want["prompt_ids"] = prompt_ids
    if usage:
        details = usage.get("prompt_tokens_details") or {}
        want["usage"] = [usage["prompt_tokens"], usage["completion_tokens"], details.get("cached_tokens")]
    return want


for path in sorted(pathlib.Path(".").glob("*.jsonl")):
    lines = []
    for line in path.read_text().splitlines():
        recording = json.loads(line)
        recording.pop("expect", None)
        if recording["path"] in ("/v1/completions", "/v1/chat/completions", "/completion", "/v1/nope"):
            recording["expect"] = expect(recording)
        lines.append(json.dumps(recording, ensure_ascii=False, separators=(",", ":")) + "\n")
    path.write_text("".join(lines))
