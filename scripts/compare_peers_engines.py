"""The engines of scripts/compare_peers.py: each measures one cell once when it is asked to."""

import json
import pathlib
import statistics
import subprocess
import threading

from compare_peers_figures import (ROOT, PeerError, difference_samples, figures_of, wait_share)

# Tokens before the measured decode steps.
DEPTH = 32
# Relative to the norm of the output; bf16 gives below 0.01.
MAX_KERNEL_ERROR = 0.05


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
        self.reply()

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

    def measure(self, kind, size, draw):
        before = self.waiting.sample()
        if kind == "layer":
            answer = self.ask({"do": "layer", "tokens": size})
        elif kind == "prefill":
            answer = self.ask({"do": "prefill", "ids": draw(size)})
        else:
            answer = self.ask({"do": "decode", "prompts": [draw(DEPTH) for _ in range(size)],
                               "steps": [draw(size) for _ in range(draw.steps)]})
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
    """moe-bench run, a process for each sample."""

    name = "moe-bench"

    def __init__(self, args, model, log):
        self.args, self.model, self.log = args, model, log

    def command(self, *parts):
        return [str(part) for part in (self.args.moe_bench, *parts, "--threads",
                                       self.args.threads, "--quiet", "--format", "json")]

    def measure(self, kind, size, draw):
        tokens = (1, size, 1) if kind == "prefill" else (size, DEPTH, 1 + draw.steps)
        command = self.command(
            "run", self.model, "--prompts", "random", "--batch", tokens[0], "--prompt-tokens",
            tokens[1], "--output-tokens", tokens[2], "--repeat", 1, "--warmup", 1, "--no-limits",
            "--raw-samples", "--seed", draw(1)[0], *self.args.run_options)
        with self.log.open("a") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT)
            report, waits = watch(process)
        if process.returncode not in (0, 1, 7):
            raise PeerError(f"moe-bench: ended with {process.returncode}; its messages are in "
                            f"{self.log}")
        seconds, experts = figures_of(json.loads(report), kind)
        return {"seconds": seconds, "experts": experts, "error": None, "wait_share": waits,
                "disk_faults": 0}

    def stop(self):
        pass


def watch(process):
    """Output of a process and the share that its threads waited."""
    waiting = Waiting(process.pid)
    ended = threading.Event()

    def poll():
        while not ended.wait(0.02):
            waiting.sample()
    poller = threading.Thread(target=poll)
    poller.start()
    out = process.stdout.read()
    process.wait()
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

    def measure(self, kind, size, draw):
        return difference_samples([self.two.measure(kind, size, draw)],
                                  [self.one.measure(kind, size, draw)])[0]


class Kernel:
    """vLLM's operation alone."""

    def __init__(self, worker):
        self.worker, self.name = worker, worker.name

    def measure(self, kind, size, draw):
        sample = self.worker.measure("layer", size, draw)
        if sample["error"] is None or sample["error"] > MAX_KERNEL_ERROR:
            raise PeerError(f"vllm: its MoE kernel is off by {sample['error']} against float32")
        return sample
