"""The engines of scripts/compare_peers.py: each measures the cells of a kind when it is asked."""

import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time

from compare_peers_figures import (ROOT, PeerError, difference_samples, figures_of, read_logits,
                                   wait_share)
from compare_peers_models import FORMATS

# Tokens before the measured decode steps.
DEPTH = 16
# Relative to the norm of the output; bf16 gives below 0.01, int8 by row and token 0.03.
MAX_KERNEL_ERROR = 0.05
# Idle OpenMP threads look for work for up to this long before they sleep.
SPIN_SECONDS = 0.3


class Waiting:
    """Time that the threads of a process ran and waited for a core, from /proc, and disk faults."""

    def __init__(self, pid):
        self.folder = pathlib.Path(f"/proc/{pid}")
        self.last = {}
        self.faults = 0

    def sample(self):
        try:
            for task in (self.folder / "task").iterdir():
                ran, waited, _ = (task / "schedstat").read_text().split()
                self.last[task.name] = int(ran), int(waited)
            fields = (self.folder / "stat").read_text().rsplit(")", 1)[1].split()
            self.faults = int(fields[9])
        except (OSError, ValueError):
            pass
        return sum(r for r, _ in self.last.values()), sum(w for _, w in self.last.values()), \
            self.faults


class Worker:
    """A peer's process that holds a model and answers one JSON line with another."""

    def __init__(self, name, command, log):
        self.name = name
        self.log = log.open("a")
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        cwd=ROOT)
        self.waiting = Waiting(self.process.pid)
        # What the report of a run should say about the engine, if anything.
        self.note = self.reply().get("note")

    def reply(self):
        line = self.process.stdout.readline()
        answer = json.loads(line) if line.startswith("{") else {}
        if not answer or "error" in answer:
            self.stop()
            reason = answer.get("error", f"ended; its messages are in {self.log.name}")
            raise PeerError(f"{self.name}: {reason}")
        return answer

    def ask(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.reply()

    def logits(self, ids, vocab_size):
        return self.ask({"do": "logits", "ids": ids, "vocab_size": vocab_size})["rows"]

    def measure(self, kind, sizes, draw, counts=False):
        # The threads of the engine before, and of this one's twin, may still spin for more work.
        time.sleep(SPIN_SECONDS)
        return [self.measure_one(kind, size, draw, counts) for size in sizes]

    def measure_one(self, kind, size, draw, counts):
        before = self.waiting.sample()
        if kind == "layer":
            answer = self.ask({"do": "layer", "tokens": size})
        elif kind == "prefill":
            answer = self.ask({"do": "prefill", "ids": draw(size), "count": counts})
        else:
            answer = self.ask({"do": "decode", "prompts": [draw(DEPTH) for _ in range(size)],
                               "steps": [draw(size) for _ in range(draw.steps)],
                               "count": counts})
        after = self.waiting.sample()
        seconds = answer["seconds"]
        return {"seconds": statistics.median(seconds) if isinstance(seconds, list) else seconds,
                "experts": answer.get("experts"), "error": answer.get("relative_error"),
                "wait_share": wait_share(before, after), "disk_faults": after[2] - before[2]}

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


class MoeBench:
    """moe-bench, a process for each sample of all cells of a kind."""

    note = None

    def __init__(self, args, name, model, options, log):
        self.args, self.name, self.model, self.log = args, name, model, log
        self.options = [*options, *args.run_options]

    def start(self, *parts):
        command = [self.args.moe_bench, *parts, "--threads", self.args.threads, "--quiet",
                   "--format", "json"]
        with self.log.open("a") as log:
            process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                                       stderr=log, cwd=ROOT)
            report, waits = watch(process)
        if process.returncode not in (0, 1, 7):
            raise PeerError(f"{self.name}: ended with {process.returncode}; its messages are in "
                            f"{self.log}")
        report = json.loads(report)
        if report.get("validity", {}).get("partial"):
            raise PeerError(f"{self.name}: was interrupted")
        return report, waits

    def logits(self, ids, vocab_size):
        return self.logits_with(ids, vocab_size, self.options)

    def logits_with(self, ids, vocab_size, options):
        path = self.log.parent / "logits.safetensors"
        self.start("generate", self.model, "--prompt-ids", ",".join(map(str, ids)), "-n", 1,
                   "--ignore-eos", "--dump-logits", path, *options)
        rows = read_logits(path.read_bytes(), len(ids), vocab_size)
        path.unlink()
        return rows

    def measure(self, kind, sizes, draw, counts=False):
        if kind == "prefill" and counts and len(sizes) > 1:
            # The report counts experts of prefills over all points together.
            return [sample for size in sizes for sample in self.measure(kind, [size], draw)]
        batch, prompt, output = ([1], sizes, 1) if kind == "prefill" else (
            sizes, [DEPTH], 1 + draw.steps)
        report, waits = self.start(
            "run", self.model, "--prompts", "random", "--batch", ",".join(map(str, batch)),
            "--prompt-tokens", ",".join(map(str, prompt)), "--output-tokens", output, "--repeat", 1,
            # Before a prefill the pass of that size; experts are warmed up anyway.
            "--warmup", int(kind == "prefill"), "--no-limits", "--raw-samples",
            "--seed", draw(1)[0], *self.options)
        return [{"seconds": seconds, "experts": experts, "error": None, "wait_share": waits,
                 "disk_faults": 0} for seconds, experts in figures_of(report, kind, sizes)]

    def stop(self):
        pass


def watch(process):
    """Output of a process and the share that its threads waited."""
    waiting = Waiting(process.pid)
    ended = threading.Event()

    def poll():
        # Seldom: reading it takes a core a millisecond, which the process would wait for.
        while not ended.wait(0.2):
            waiting.sample()
    poller = threading.Thread(target=poll)
    poller.start()
    try:
        out = process.stdout.read()
        process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        ended.set()
        poller.join()
    return out, wait_share((0, 0), waiting.sample())


class Draw:
    """Random token ids; `steps` says how many decode steps a sample has."""

    def __init__(self, rng, vocab_size, steps):
        self.rng, self.vocab_size, self.steps = rng, vocab_size, steps

    def __call__(self, count):
        return [self.rng.randrange(self.vocab_size) for _ in range(count)]


class Difference:
    """One engine on the 2-layer and the 1-layer model."""

    def __init__(self, two, one):
        self.two, self.one, self.name = two, one, two.name
        self.note = two.note

    def measure(self, kind, sizes, draw, counts=False):
        return difference_samples(self.two.measure(kind, sizes, draw, counts),
                                  self.one.measure(kind, sizes, draw, counts))

    def stop(self):
        self.two.stop()
        self.one.stop()


class Kernel:
    """A fused operation of the wheel of vLLM alone."""

    note = None

    def __init__(self, worker):
        self.worker, self.name = worker, worker.name

    def measure(self, kind, sizes, draw, counts=False):
        samples = self.worker.measure("layer", sizes, draw)
        for sample in samples:
            if sample["error"] is None or sample["error"] > MAX_KERNEL_ERROR:
                raise PeerError(f"{self.name}: its MoE kernel is off by {sample['error']} against "
                                "float32")
        return samples

    def stop(self):
        self.worker.stop()


def own_engines(args, subject, form, log):
    """moe-bench on the file that the peers run, then rounding the 16-bit weights by itself, each
    in every numeric mode that was asked for; int8 goes with rounded weights only."""
    rounded = FORMATS[form][1]
    # Beside SGLang's kernel also with its kind of scales.
    by_itself = [rounded] if rounded else []
    if form == "q8_0" and args.vllm:
        by_itself.append("int8-channel")
    modes = [mode for mode in args.activations if form != "bf16" or mode != "int8"] or ["auto"]
    engines = []
    for mode in modes:
        suffix = "" if mode == modes[0] else f" a:{mode}"
        options = ["--activations", mode]
        engines.append(MoeBench(args, f"moe-bench{suffix}", subject.gguf(form), options, log))
        for quantize in by_itself:
            engines.append(MoeBench(args, f"moe-bench {quantize}{suffix}", subject.gguf("bf16"),
                                    [*options, "--quantize", quantize], log))
    return engines


def peer_starters(args, subject, form, log):
    """Name -> what starts that peer."""
    context = max([DEPTH + args.steps + 8, *args.prefill]) + 8
    sequences = max([1, *args.batch])
    script = ROOT / "scripts"
    starters = {}
    for name, folder, more in (("llama", args.llama, []), ("ik", args.ik, ["--repack"])):
        if folder:
            starters[name] = lambda name=name, folder=folder, more=more: Worker(name, [
                sys.executable, script / "compare_peers_llama.py", folder, subject.gguf(form),
                args.threads, context, sequences, *more], log)
    if args.vllm and form == "bf16":
        starters["vllm"] = lambda: Worker("vllm", [
            args.vllm / "bin/python", script / "compare_peers_vllm.py", subject.checkpoint,
            args.threads, context, sequences], log)
    return starters


# The fused MoE operation of vLLM's wheel that has the same bits a weight.
KERNEL_OF_FORMAT = {"bf16": "vllm", "q8_0": "sglang"}


def fused_kernel(args, name, sizes, log):
    return Kernel(Worker(name, [
        args.vllm / "bin/python", ROOT / "scripts/compare_peers_vllm.py", "--layer", name,
        sizes["hidden_size"], sizes["intermediate_size"], sizes["num_local_experts"],
        sizes["num_experts_per_tok"], args.threads], log))
