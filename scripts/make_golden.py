#!/usr/bin/env python3
"""Makes a golden file for `moe-bench verify` from a checkpoint of your own, with transformers.

    scripts/make_golden.py CHECKPOINT OUT.safetensors [--prompt TEXT | --ids 5,7,11,...]
                           [--steps 16] [--dtype float32|float64]
    build/release/bin/moe-bench verify CHECKPOINT --golden OUT.safetensors

Needs the Python packages torch, transformers and safetensors (for quantised weights also what
transformers then asks for), and memory for the whole model (4 bytes a parameter, 8 with float64).
Runs on the CPU with eager attention and without code from the
checkpoint. Writes what transformers computes stage by stage: the input of layer 0, attention and
feed-forward outputs, router inputs and logits, the residual stream, logits, and a greedy
continuation (scenarios/checkpoints/README.md says what each tensor means). Which experts were
chosen is not written, because transformers keeps it in another place in every family; a wrong
choice shows in the output of the block.
"""

import argparse
import json
import pathlib
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"make_golden.py needs torch, transformers and safetensors: {error}", file=sys.stderr)
    sys.exit(4)

FEED_FORWARD_NAMES = ("mlp", "block_sparse_moe", "feed_forward", "ffn")
ROUTER_NAMES = ("gate", "router")


def first_tensor(output):
    """A module's main result; several families return tuples."""
    return output[0] if isinstance(output, (tuple, list)) else output


def child(module, names):
    """The first of the named parts that the module has; None without any."""
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)


def router_of(feed_forward):
    """The module whose weight has a row per expert, or None for a dense layer."""
    router = child(feed_forward, ROUTER_NAMES)
    # Granite and DBRX wrap their router's linear layer.
    router = getattr(router, "layer", router)
    weight = getattr(router, "weight", None)
    is_router = weight is not None and weight.dim() == 2 and hasattr(feed_forward, "experts")
    # Granite again: its experts lie beside the router, not under "experts".
    is_router = is_router or (weight is not None and hasattr(feed_forward, "input_linear") and
                              weight.dim() == 2)
    return router if is_router else None


class Recorder:
    """Collects the tensors of one forward pass under their golden names."""

    def __init__(self, model):
        self.tensors = {}
        # The second names are DBRX's.
        base = child(model, ("model", "transformer"))
        layers = child(base, ("layers", "blocks"))
        layers[0].register_forward_pre_hook(self.input_hook("embed"), with_kwargs=True)
        child(base, ("norm", "norm_f")).register_forward_hook(self.output_hook("final_norm"))
        for index, layer in enumerate(layers):
            prefix = f"layers.{index}."
            layer.register_forward_hook(self.output_hook(prefix + "hidden"))
            attention = child(layer, ("self_attn",)) or layer.norm_attn_norm.attn
            attention.register_forward_hook(self.output_hook(prefix + "attn_out"))
            feed_forward = child(layer, FEED_FORWARD_NAMES)
            if feed_forward is None:
                continue
            router = router_of(feed_forward)
            kind = "mlp_out" if router is None else "moe_out"
            feed_forward.register_forward_hook(self.output_hook(prefix + kind))
            if router is not None:
                feed_forward.register_forward_pre_hook(self.router_hook(prefix, router),
                                                       with_kwargs=True)

    def keep(self, name, value):
        self.tensors[name] = value.detach().reshape(-1, value.shape[-1]).float().contiguous()

    def output_hook(self, name):
        return lambda module, arguments, output: self.keep(name, first_tensor(output))

    def input_hook(self, name):
        return lambda module, arguments, named: self.keep(
            name, arguments[0] if arguments else named["hidden_states"])

    def router_hook(self, prefix, router):
        def hook(module, arguments, named):
            value = arguments[0] if arguments else named["hidden_states"]
            self.keep(prefix + "router_in", value)
            bias = getattr(router, "bias", None)
            self.keep(prefix + "router_logits", torch.nn.functional.linear(
                value, router.weight.to(value.dtype),
                None if bias is None else bias.to(value.dtype)))
        return hook

    def take(self):
        tensors, self.tensors = self.tensors, {}
        return tensors


def prompt_ids(options):
    if options.ids:
        return [int(text) for text in options.ids.split(",")]
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.checkpoint,
                                                           local_files_only=True)
    return tokenizer(options.prompt, add_special_tokens=False)["input_ids"]


def load_config(checkpoint):
    """The config, with what transformers itself does not make of the published files."""
    values, _ = transformers.PretrainedConfig.get_config_dict(checkpoint, local_files_only=True)
    if values.get("model_type") == "kimi_k2":  # its maths under a name of its own
        values["model_type"] = "deepseek_v3"
        return transformers.AutoConfig.for_model(**values)
    config = transformers.AutoConfig.from_pretrained(checkpoint, local_files_only=True,
                                                     trust_remote_code=False)
    theta = values.get("attn_config", {}).get("rope_theta")
    if theta is not None and getattr(config, "rope_parameters", None):
        config.rope_parameters["rope_theta"] = theta  # DBRX: version 5 takes its default
    return config


def link_with_index(checkpoint, directory):
    """The files of a checkpoint with the index that transformers needs to find several shards."""
    weight_map = {}
    for file in sorted(pathlib.Path(checkpoint).iterdir()):
        (directory / file.name).symlink_to(file.resolve())
        if file.match("model-*.safetensors"):
            with safetensors.safe_open(file, "pt") as tensors:
                weight_map.update(dict.fromkeys(tensors.keys(), file.name))
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def load_model(checkpoint, dtype):
    config = load_config(checkpoint)
    with tempfile.TemporaryDirectory() as links:
        where = pathlib.Path(checkpoint)
        if not any((where / name).exists()
                   for name in ("model.safetensors", "model.safetensors.index.json")):
            where = pathlib.Path(links)
            link_with_index(checkpoint, where)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            where, config=config, torch_dtype=dtype, attn_implementation="eager",
            local_files_only=True, trust_remote_code=False).eval()
    if hasattr(model, "set_experts_implementation"):
        # From version 5 on the default is a grouped product without float64.
        model.set_experts_implementation("eager")
    return model


@torch.inference_mode()
def run(model, ids, num_steps):
    """The prompt in one pass, then greedy steps of one token each on the cache."""
    recorder = Recorder(model)
    output = model(input_ids=torch.tensor([ids]), use_cache=True)
    golden = recorder.take()
    golden["input_ids"] = torch.tensor(ids, dtype=torch.int32)
    golden["position_ids"] = torch.arange(len(ids), dtype=torch.int32)
    golden["logits"] = output.logits[0].float().contiguous()

    greedy = []
    logits = []
    hidden = {}
    row = output.logits[0, -1]
    for _ in range(num_steps):
        greedy.append(int(row.argmax()))
        output = model(input_ids=torch.tensor([[greedy[-1]]]), use_cache=True,
                       past_key_values=output.past_key_values)
        row = output.logits[0, -1]
        logits.append(row.float())
        for name, value in recorder.take().items():
            if name.endswith(".hidden"):
                hidden.setdefault("decode." + name, []).append(value[0])
    if greedy:
        golden["greedy_ids"] = torch.tensor(greedy, dtype=torch.int32)
        golden["decode_logits"] = torch.stack(logits)
        golden.update({name: torch.stack(rows) for name, rows in hidden.items()})
    return golden


def main():
    parser = argparse.ArgumentParser(description="see the head of this file")
    parser.add_argument("checkpoint")
    parser.add_argument("output")
    parser.add_argument("--prompt", default="The quick brown fox jumps over the lazy dog, and then")
    parser.add_argument("--ids", help="token ids with commas instead of a prompt")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    options = parser.parse_args()

    ids = prompt_ids(options)
    if not ids:
        parser.error("the prompt has no tokens")
    try:
        model = load_model(options.checkpoint, getattr(torch, options.dtype))
    except ImportError as error:  # transformers names the package that the weights need
        print(f"make_golden.py: {error}", file=sys.stderr)
        sys.exit(4)
    golden = run(model, ids, options.steps)
    safetensors.torch.save_file(golden, options.output, metadata={
        "family": model.config.model_type, "transformers": transformers.__version__,
        "torch": torch.__version__, "dtype": options.dtype})
    print(f"{options.output}: {len(golden)} tensors, {len(ids)} prompt tokens, "
          f"{options.steps} greedy steps")


if __name__ == "__main__":
    main()
