#!/usr/bin/env python3
"""Write a Qwen3-MoE or Mixtral checkpoint of bf16 safetensors as one GGUF file.

    scripts/make_gguf.py CHECKPOINT_DIR OUT.gguf [f32|bf16]

For programs that read nothing else. float32 (the default) holds every bf16 value exactly, and so
does bf16, where norms and routers stay float32: all forms are the same model. A byte-level BPE
tokenizer goes along when the checkpoint has one. Holds one tensor in memory at a time.
"""

import json
import mmap
import pathlib
import struct
import sys

ALIGNMENT = 32
TYPE_UINT32, TYPE_INT32, TYPE_FLOAT32, TYPE_BOOL, TYPE_STRING, TYPE_ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_BF16 = 0, 30
TOKEN_NORMAL, TOKEN_CONTROL = 1, 3

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}


class Family:
    """How one model type names its tensors, its sizes and its architecture."""

    def __init__(self, arch, block, experts, num_experts_key, expert_size_key, has_qk_norm):
        self.arch = arch
        self.block = block
        self.experts = experts
        self.num_experts_key = num_experts_key
        self.expert_size_key = expert_size_key
        self.layer_names = LAYER_NAMES | {f"{block}.gate": "ffn_gate_inp"}
        if has_qk_norm:
            self.layer_names |= {"self_attn.q_norm": "attn_q_norm",
                                 "self_attn.k_norm": "attn_k_norm"}


FAMILIES = {
    "qwen3_moe": Family("qwen3moe", "mlp",
                        {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps",
                         "down_proj": "ffn_down_exps"}, "num_experts", "moe_intermediate_size",
                        True),
    "mixtral": Family("llama", "block_sparse_moe",
                      {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"},
                      "num_local_experts", "intermediate_size", False),
}


class Tensor:
    """Shape, and the parts that its bytes are joined from; `heads` says whose rows to permute."""

    def __init__(self, shape, parts, dtype, heads=0):
        self.shape = shape
        self.parts = parts
        self.dtype = dtype
        self.heads = heads

    def type_in(self, wanted):
        """Vectors and routers stay float32: they are small, and others expect it."""
        return TENSOR_BF16 if wanted == "bf16" and self.dtype == "BF16" else TENSOR_F32

    def size(self, kind):
        values = sum(len(part) for part in self.parts) // (2 if self.dtype == "BF16" else 4)
        return values * (2 if kind == TENSOR_BF16 else 4)

    def write(self, file, kind):
        for part in self.parts:
            raw = bytes(part)
            if self.heads:
                raw = interleave_halves(raw, self.shape, self.heads)
            if self.dtype == "BF16" and kind == TENSOR_F32:
                raw = widen(raw)
            file.write(raw)


def widen(raw):
    wide = bytearray(2 * len(raw))
    wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
    return bytes(wide)


def interleave_halves(raw, shape, heads):
    """Rows of a head from halves [0..d/2), [d/2..d) to pairs: rotation of the arch "llama"."""
    row = len(raw) // shape[0]
    half = shape[0] // heads // 2
    order = (head * 2 * half + side * half + pair
             for head in range(heads) for pair in range(half) for side in range(2))
    return b"".join(raw[at * row:(at + 1) * row] for at in order)


def read_tensors(directory):
    """Name -> (shape, dtype, bytes in the mapped file)."""
    index_file = directory / "model.safetensors.index.json"
    index = json.loads(index_file.read_text())["weight_map"] if index_file.exists() else None
    shards = sorted(set(index.values())) if index else ["model.safetensors"]
    tensors = {}
    for shard in shards:
        with (directory / shard).open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(bytes(data[8:8 + length]))
        for name, entry in header.items():
            if name == "__metadata__" or (index and index.get(name) != shard):
                continue
            if entry["dtype"] not in ("BF16", "F32"):
                sys.exit(f"{name}: expected BF16 or F32, found {entry['dtype']}")
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["shape"], entry["dtype"],
                             data[8 + length + begin:8 + length + end])
    return tensors


def rename(tensors, config, family):
    def plain(name, heads=0):
        shape, dtype, raw = tensors[name]
        return Tensor(shape, [raw], dtype, heads)

    def stays_wide(tensor):
        """The same with float32 parts."""
        parts = [widen(bytes(part)) if tensor.dtype == "BF16" else part for part in tensor.parts]
        return Tensor(tensor.shape, parts, "F32")

    out = {"token_embd.weight": plain("model.embed_tokens.weight"),
           "output_norm.weight": stays_wide(plain("model.norm.weight"))}
    if "lm_head.weight" in tensors:
        out["output.weight"] = plain("lm_head.weight")
    rotated = {}
    if family.arch == "llama":
        rotated = {"attn_q": config["num_attention_heads"],
                   "attn_k": config["num_key_value_heads"]}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for theirs, ours in family.layer_names.items():
            tensor = plain(f"{prefix}{theirs}.weight", rotated.get(ours, 0))
            if "norm" in ours or ours == "ffn_gate_inp":
                tensor = stays_wide(tensor)
            out[f"blk.{layer}.{ours}.weight"] = tensor
        for theirs, ours in family.experts.items():
            experts = [tensors[f"{prefix}{family.block}.experts.{e}.{theirs}.weight"]
                       for e in range(config[family.num_experts_key])]
            shape, dtype, _ = experts[0]
            out[f"blk.{layer}.{ours}.weight"] = Tensor(
                [len(experts), *shape], [raw for _, _, raw in experts], dtype)
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


def tokenizer_keys(directory, config):
    if not (directory / "tokenizer.json").exists():
        return {"tokenizer.ggml.model": "no_vocab"}
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
    keys = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges, "tokenizer.ggml.add_bos_token": False,
    }
    for theirs, ours in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if isinstance(config.get(f"{theirs}_token_id"), int):
            keys[f"tokenizer.ggml.{ours}_token_id"] = config[f"{theirs}_token_id"]
    return keys


def metadata(directory, config, family, kind):
    arch = family.arch
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {
        "general.architecture": arch, "general.name": directory.name,
        # The file types of llama.cpp: 0 all float32, 32 mostly bf16.
        "general.file_type": 32 if kind == "bf16" else 0,
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.vocab_size": config["vocab_size"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": config["num_key_value_heads"],
        f"{arch}.attention.key_length": head_dim,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{arch}.rope.dimension_count": head_dim,
        f"{arch}.rope.freq_base": float(config["rope_theta"]),
        f"{arch}.expert_count": config[family.num_experts_key],
        f"{arch}.expert_used_count": config["num_experts_per_tok"],
        f"{arch}.expert_feed_forward_length": config[family.expert_size_key],
    } | tokenizer_keys(directory, config)


def write_gguf(directory, out, kind):
    config = json.loads((directory / "config.json").read_text())
    family = FAMILIES.get(config["model_type"])
    if family is None:
        sys.exit(f"{directory}: expected model_type {' or '.join(FAMILIES)}, found "
                 f"{config['model_type']}")
    tensors = rename(read_tensors(directory), config, family)
    keys = metadata(directory, config, family, kind)
    with out.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)))
        for key, value in keys.items():
            file.write(string(key) + value_of(value))
        offset = 0
        for name, tensor in tensors.items():
            dims = list(reversed(tensor.shape))
            type_number = tensor.type_in(kind)
            file.write(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims,
                                                  type_number, offset))
            offset += -(-tensor.size(type_number) // ALIGNMENT) * ALIGNMENT
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        for tensor in tensors.values():
            tensor.write(file, tensor.type_in(kind))
            file.write(b"\0" * (-file.tell() % ALIGNMENT))


def main():
    kind = sys.argv[3] if len(sys.argv) == 4 else "f32"
    if len(sys.argv) not in (3, 4) or kind not in ("f32", "bf16"):
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    write_gguf(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
