#!/usr/bin/env python3
"""Measure how fast moe-bench loads and packs a checkpoint, and how much memory it takes doing so.

    scripts/measure_load.py [--moe-bench FILE] [--model NAME] [--size GB] [--dir DIR] [--rounds N]
                            [--threads N]

Writes a 16-bit checkpoint of random weights of about that size (as many layers of a config of
scenarios/models as fit), reads it into the page cache, and runs moe-bench on one token of it. The
rate is the file's bytes over `load_s` of the report; the peak is the largest resident size of the
process, mapped file pages included, over the packed weights. A round that read from disk is said to
and does not count. When cache and packed weights do not fit in memory together, moe-bench hands the
cached pages back as it goes, so each round reads them anew before it starts.

Exit status: 0 both are met in the median of the rounds, 1 one is not, 2 usage, 4 something is not
there, 5 moe-bench failed, 7 no round was served from the page cache.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIN_BYTES_PER_S = 1e9
MAX_PEAK_RATIO = 1.15
READ_BYTES = 16 << 20


class LoadError(Exception):
    """One line on what failed."""


def layer_parameters(config):
    """(of a layer's experts, attention and router; of embedding and head) from a config."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    experts = config.get("num_local_experts") or config["num_experts"]
    intermediate = config.get("moe_intermediate_size", config["intermediate_size"])
    attention = 2 * hidden * head_dim * (heads + config["num_key_value_heads"])
    layer = experts * 3 * hidden * intermediate + attention + experts * hidden
    return layer, 2 * config["vocab_size"] * hidden


def layers_for(config, size_bytes):
    """As many layers as come closest to the size, at least one, at most what the config has."""
    layer, rest = layer_parameters(config)
    wanted = round((size_bytes / 2 - rest) / layer)
    return max(1, min(wanted, config["num_hidden_layers"]))


def run(command):
    """Output and resource usage of a command that must end well."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        # 7: one token is too little to measure, which is not what it is run for.
        if process.returncode not in (0, 7):
            raise LoadError(f"moe-bench {command[1]}: ended with {process.returncode}: "
                            f"{err.read().strip()}")
        return out.read(), usage


def read_files(folder):
    """Reads every weight file, so that it lies in the page cache; the bytes of them."""
    total = 0
    buffer = bytearray(READ_BYTES)
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def figures_of(report, file_bytes, usage):
    value = lambda name: report["metrics"][name]["value"]  # noqa: E731
    # ru_maxrss is in KiB, ru_inblock in blocks of 512 bytes.
    return {"bytes_per_s": file_bytes / value("load_s"),
            "peak_ratio": usage.ru_maxrss * 1024 / value("memory_weight_bytes"),
            "peak_bytes": usage.ru_maxrss * 1024, "weight_bytes": value("memory_weight_bytes"),
            "disk_bytes": usage.ru_inblock * 512}


def is_cached(figures, file_bytes):
    """A few pages of the binary and its libraries may come from disk."""
    return figures["disk_bytes"] < file_bytes / 1000


def verdict(rounds, file_bytes):
    """(line, exit status) of the rounds."""
    cached = [one for one in rounds if is_cached(one, file_bytes)]
    if not cached:
        return "no round was served from the page cache: use a smaller --size", 7
    rate = statistics.median(one["bytes_per_s"] for one in cached)
    peak = statistics.median(one["peak_ratio"] for one in cached)
    met = rate >= MIN_BYTES_PER_S and peak <= MAX_PEAK_RATIO
    return (f"{len(cached)} of {len(rounds)} rounds from the page cache: median "
            f"{rate / 1e9:.2f} GB/s (at least {MIN_BYTES_PER_S / 1e9:.2f}), peak "
            f"{peak:.3f} x the packed weights (at most {MAX_PEAK_RATIO}): "
            f"{'met' if met else 'NOT MET'}"), 0 if met else 1


def measure(args, config):
    layers = layers_for(config, args.size * 1e9)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="measure-load-", dir=args.dir))
    try:
        checkpoint = folder / "checkpoint"
        run([args.moe_bench, "synth", args.model, "--layers", layers, "--out", checkpoint,
             "--quiet", "--format", "none"])
        rounds = []
        for number in range(args.rounds):
            file_bytes = read_files(checkpoint)
            out, usage = run([
                args.moe_bench, "run", checkpoint, "--batch", 1, "--prompt-tokens", 1,
                "--output-tokens", 1, "--repeat", 1, "--warmup", 0, "--no-limits", "--prompts",
                "random", "--threads", args.threads, "--quiet", "--format", "json"])
            one = figures_of(json.loads(out), file_bytes, usage)
            rounds.append(one)
            note = "" if is_cached(one, file_bytes) else ", does not count"
            print(f"round {number + 1}: {file_bytes / 1e9:.2f} GB in {layers} layers, "
                  f"{one['bytes_per_s'] / 1e9:.2f} GB/s, peak {one['peak_bytes'] / 1e9:.2f} GB = "
                  f"{one['peak_ratio']:.3f} x {one['weight_bytes'] / 1e9:.2f} GB packed, "
                  f"{one['disk_bytes'] / 1e6:.1f} MB from disk{note}", flush=True)
        text, status = verdict(rounds, file_bytes)
        print(text)
        return status
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moe-bench", type=pathlib.Path,
                        default=ROOT / "build/release/bin/moe-bench")
    parser.add_argument("--model", default="OLMoE-1B-7B")
    parser.add_argument("--size", type=float, default=14.0, metavar="GB")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build",
                        help="where the checkpoint is written, and removed [default: build]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0 takes all [default: all]")
    args = parser.parse_args(argv)
    source = ROOT / "scenarios" / "models" / f"{args.model}.json"
    if args.size <= 0 or args.rounds < 1 or not source.exists():
        parser.error("expected a size and rounds above 0, and a model of scenarios/models")
    for path in (args.moe_bench, args.dir):
        if not path.exists():
            print(f"measure_load: {path} is not there", file=sys.stderr)
            return 4
    try:
        return measure(args, json.loads(source.read_text()))
    except LoadError as error:
        print(f"measure_load: {error}", file=sys.stderr)
        return 5


if __name__ == "__main__":
    sys.exit(main())
