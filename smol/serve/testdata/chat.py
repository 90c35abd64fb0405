"""Renders conversations with Jinja itself, for TestTemplates.

    python3 chat.py MODEL_DIR... > chat.json

Each directory holds a model.json with the template. Needs jinja2 (3.1.6 was
used); its environment is set up as transformers sets up its own.
"""
import json
import pathlib
import sys

import jinja2
import jinja2.sandbox

CONVERSATIONS = [
    [("user", "What is the capital of France? Answer in one sentence.")],
    [("system", "Be brief."), ("user", "Hi")],
    [("user", "Hi"), ("assistant", "Hello!"), ("user", "  two spaces, then a newline\n")],
    [("system", ""), ("user", "")],
    [("user", "Hi"), ("system", "late"), ("assistant", "open end")],
    [("assistant", "first")],
    [("user", "quotes ' \" and {{ braces }} {% if %} <b>&amp;</b> é 😀 <|im_end|>")],
]

environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
out = []
for directory in sys.argv[1:]:
    manifest = json.loads(pathlib.Path(directory, "model.json").read_text())
    template = environment.from_string(manifest["chat_template"])
    cases = []
    for conversation in CONVERSATIONS:
        messages = [{"role": role, "content": content} for role, content in conversation]
        cases.append({"messages": messages, "text": template.render(messages=messages, add_generation_prompt=True)})
    out.append({"model": manifest["id"], "template": manifest["chat_template"], "cases": cases})
json.dump(out, sys.stdout, indent=1, ensure_ascii=False)
print()
