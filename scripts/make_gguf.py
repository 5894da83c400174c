#!/usr/bin/env python3
"""Write a Qwen3-MoE checkpoint of bf16 safetensors as one GGUF file of float32 values.

    scripts/make_gguf.py CHECKPOINT_DIR OUT.gguf

For servers that read nothing else. float32 holds every bf16 value exactly, so that both forms of
the weights are the same model. The byte-level BPE tokenizer goes along.
"""

import json
import pathlib
import struct
import sys

ALIGNMENT = 32
TYPE_UINT32, TYPE_INT32, TYPE_FLOAT32, TYPE_BOOL, TYPE_STRING, TYPE_ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32 = 0
TOKEN_NORMAL, TOKEN_CONTROL = 1, 3

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
}
EXPERT_NAMES = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps",
                "down_proj": "ffn_down_exps"}


def read_tensors(directory):
    """Name -> (shape, bytes of float32), for the tensors that the index lists."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]
    tensors = {}
    for shard in sorted(set(index.values())):
        data = (directory / shard).read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + length])
        for name, entry in header.items():
            if index.get(name) != shard:
                continue
            begin, end = entry["data_offsets"]
            raw = data[8 + length + begin:8 + length + end]
            if entry["dtype"] == "BF16":
                wide = bytearray(2 * len(raw))
                wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
                raw = bytes(wide)
            elif entry["dtype"] != "F32":
                sys.exit(f"{name}: expected BF16 or F32, found {entry['dtype']}")
            tensors[name] = (entry["shape"], raw)
    return tensors


def rename(tensors, config):
    out = {"token_embd.weight": tensors["model.embed_tokens.weight"],
           "output_norm.weight": tensors["model.norm.weight"]}
    if "lm_head.weight" in tensors:
        out["output.weight"] = tensors["lm_head.weight"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for theirs, ours in LAYER_NAMES.items():
            out[f"blk.{layer}.{ours}.weight"] = tensors[f"{prefix}{theirs}.weight"]
        for theirs, ours in EXPERT_NAMES.items():
            experts = [tensors[f"{prefix}mlp.experts.{e}.{theirs}.weight"]
                       for e in range(config["num_experts"])]
            shape = [len(experts), *experts[0][0]]
            out[f"blk.{layer}.{ours}.weight"] = (shape, b"".join(raw for _, raw in experts))
    return out


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_of(value):
    if isinstance(value, bool):
        return struct.pack("<I?", TYPE_BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", TYPE_UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", TYPE_FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", TYPE_STRING) + string(value)
    head = struct.pack("<I", TYPE_ARRAY)
    if isinstance(value[0], str):
        return head + struct.pack("<IQ", TYPE_STRING, len(value)) + b"".join(map(string, value))
    return head + struct.pack(f"<IQ{len(value)}i", TYPE_INT32, len(value), *value)


def metadata(directory, config):
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    tokens = [""] * config["vocab_size"]
    kinds = [TOKEN_NORMAL] * config["vocab_size"]
    for token, number in tokenizer["model"]["vocab"].items():
        tokens[number] = token
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        kinds[added["id"]] = TOKEN_CONTROL
    merges = [one if isinstance(one, str) else " ".join(one)
              for one in tokenizer["model"]["merges"]]
    arch = "qwen3moe"
    return {
        "general.architecture": arch, "general.name": directory.name, "general.file_type": 0,
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": config["head_dim"],
        f"{arch}.attention.value_length": config["head_dim"],
        f"{arch}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{arch}.rope.freq_base": float(config["rope_theta"]),
        f"{arch}.expert_count": config["num_experts"],
        f"{arch}.expert_used_count": config["num_experts_per_tok"],
        f"{arch}.expert_feed_forward_length": config["moe_intermediate_size"],
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.ggml.padding_token_id": config["pad_token_id"],
        "tokenizer.ggml.add_bos_token": False,
    }


def main():
    if len(sys.argv) != 3:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    directory, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    config = json.loads((directory / "config.json").read_text())
    tensors = rename(read_tensors(directory), config)
    keys = metadata(directory, config)
    with out.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)))
        for key, value in keys.items():
            file.write(string(key) + value_of(value))
        offset = 0
        for name, (shape, raw) in tensors.items():
            dims = list(reversed(shape))
            file.write(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims,
                                                  TENSOR_F32, offset))
            offset += -(-len(raw) // ALIGNMENT) * ALIGNMENT
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        for _, raw in tensors.values():
            file.write(raw + b"\0" * (-len(raw) % ALIGNMENT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
