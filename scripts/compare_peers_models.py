"""The models of scripts/compare_peers.py on disk, in the formats that are compared."""

import json
import shutil
import subprocess
import sys

import make_gguf
from compare_peers_figures import ROOT, PeerError

# Format -> (llama_ftype of the library that writes it, what --quantize calls the same width; None:
# nothing does). "mostly": that library keeps router and norms in float32 and may give head, values
# and down projections more bits.
FORMATS = {"bf16": (None, None), "q8_0": (7, "int8"), "q4_0": (2, "int4"), "q4_k_m": (15, None),
           "q6_k": (18, None)}


def model_config(family, sizes, layers, vocab_size, context):
    """config.json of a family that every engine reads."""
    config = {"hidden_act": "silu", "vocab_size": vocab_size, "max_position_embeddings": context,
              "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": False,
              "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
              "sliding_window": None, "num_hidden_layers": layers, "model_type": family} | sizes
    if family == "mixtral":
        return config | {"architectures": ["MixtralForCausalLM"]}
    config["num_experts"] = config.pop("num_local_experts")
    return config | {"architectures": ["Qwen3MoeForCausalLM"], "norm_topk_prob": True,
                     "moe_intermediate_size": sizes["intermediate_size"], "mlp_only_layers": [],
                     "decoder_sparse_step": 1, "attention_bias": False}


class Subject:
    """One model of random weights: a checkpoint, and a GGUF file of each format."""

    def __init__(self, args, label, config):
        self.args, self.label, self.folder = args, label, args.out / label
        self.vocab_size = config["vocab_size"]
        self.checkpoint = self.folder / "checkpoint"
        self.folder.mkdir(parents=True, exist_ok=True)
        source = self.folder / "config.json"
        text = json.dumps(config, indent=1)
        whole = (self.folder / "bf16.gguf").exists() and (self.checkpoint.exists() or not args.vllm)
        if not (whole and source.exists() and source.read_text() == text):
            self.write(source, text)

    def write(self, source, text):
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        for old in self.folder.glob("*.gguf"):
            old.unlink()
        source.write_text(text)
        done = subprocess.run([self.args.moe_bench, "synth", source, "--out", self.checkpoint,
                               "--quiet", "--format", "none"], capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerError(f"moe-bench synth: {done.stderr.strip()}")
        partial = self.folder / "partial"
        make_gguf.write_gguf(self.checkpoint, partial, "bf16")
        partial.rename(self.folder / "bf16.gguf")
        if not self.args.vllm:
            shutil.rmtree(self.checkpoint)

    def gguf(self, form):
        """The file in this format; the quantiser is llama.cpp's own, so the rounding is, too."""
        path = self.folder / f"{form}.gguf"
        if not path.exists():
            partial = self.folder / "partial"
            done = subprocess.run(
                [sys.executable, ROOT / "scripts/compare_peers_llama.py", "--quantize",
                 self.args.llama or self.args.ik, self.folder / "bf16.gguf", partial,
                 str(FORMATS[form][0]), str(self.args.threads)], capture_output=True, text=True)
            if done.returncode != 0:
                raise PeerError(f"{path.name}: {done.stdout.strip() or done.stderr.strip()}")
            partial.rename(path)
        return path

    def remove(self):
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        for old in self.folder.glob("*.gguf"):
            old.unlink()
