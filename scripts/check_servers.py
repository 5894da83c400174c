#!/usr/bin/env python3
"""Run moe-bench serve against vLLM and llama.cpp and compare what each side saw.

    scripts/check_servers.py ENVIRONMENT_DIR MOE_BENCH OUTPUT_DIR [vllm|llama.cpp]

Called by scripts/test_servers.sh. For each server: a closed loop, an open loop, tokens and
latencies of the client beside those of the server's metrics and of its log, greedy tokens beside
those of moe-bench generate on the same checkpoint, the server and the checkpoint in process in one
report (moe-bench compare --in-process) with equal greedy tokens, and a server that is killed in
mid-run. Writes OUTPUT_DIR/summary.json and prints it as a table; ends with 1 when a check failed.
Counts and tokens must agree; times must agree between the two sides of one request, how long they
are is not judged.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKPOINT = ROOT / "scenarios/checkpoints/tinymoe-qwen3"
VOCABULARY = 2045  # ids below the special ones
START_TIMEOUT_S = 900
PROMPT_TOKENS, OUTPUT_TOKENS = 32, 24
# moe-bench looks at a server with a short request of its own before a run.
PROBE_TOKENS, PROBE_REQUESTS = 16, 1
CLOSED_REQUESTS, OPEN_REQUESTS, WARMUP = 20, 16, 4
COMPARED_REQUESTS, COMPARED_ROUNDS = 12, 2
FIGURES = ("ttft_s", "itl_s", "tpot_s", "e2el_s", "output_tokens_per_s", "requests_per_s")
PROMPTS = [[1745, 273, 477, 1202, 304], [1, 5, 9, 200, 31], [77, 77, 77, 410, 9, 23],
           [2000, 3, 1500]]
GREEDY_TOKENS = 32


class Checks:
    def __init__(self):
        self.rows = []

    def add(self, server, name, is_right, detail):
        self.rows.append({"server": server, "check": name, "ok": bool(is_right), "detail": detail})
        print(f"{'ok  ' if is_right else 'FAIL'} {server:10} {name}: {detail}", flush=True)

    def failed(self):
        return sum(not row["ok"] for row in self.rows)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url, body=None, timeout=120):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.read().decode()


class Server:
    """One server process and everything it started, with a log file."""

    def __init__(self, name, command, environment, port, output):
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self.log = output / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment,
                                            start_new_session=True)

    def wait(self):
        begin = time.monotonic()
        while time.monotonic() - begin < START_TIMEOUT_S:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.log}")
            try:
                get(self.url + "/health", timeout=2)
                return time.monotonic() - begin
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise RuntimeError(f"{self.name} was not ready after {START_TIMEOUT_S} s: {self.log}")

    def signal_all(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def stop(self):
        self.signal_all(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.signal_all(signal.SIGKILL)
            self.process.wait()


def start_vllm(python, port, output):
    environment = dict(os.environ, VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
                       OMP_NUM_THREADS="2", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    command = [python.parent / "vllm", "serve", CHECKPOINT, "--served-model-name", "tinymoe",
               "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager",
               "--no-enable-prefix-caching", "--max-num-seqs", "8", "--host", "127.0.0.1",
               "--port", str(port)]
    return Server("vllm", command, environment, port, output)


def start_llama(python, port, output):
    model = output / "model.gguf"
    subprocess.run([sys.executable, ROOT / "scripts/make_gguf.py", CHECKPOINT, model], check=True)
    command = [python, ROOT / "scripts/llama_server.py", model, str(port), "4", "1024"]
    return Server("llama.cpp", command, dict(os.environ), port, output)


def metrics(url):
    """Name -> sum over all series of the page."""
    totals = {}
    for line in get(url + "/metrics").splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)$", line)
        if match:
            totals[match[1]] = totals.get(match[1], 0.0) + float(match[2])
    return totals


def moe_bench_serve(binary, url, output, name, *options, expect=(0,)):
    report_file, requests_file = output / f"{name}.json", output / f"{name}.jsonl"
    command = [binary, "serve", url, "--prompt-tokens", str(PROMPT_TOKENS), "--output-tokens",
               str(OUTPUT_TOKENS), "--vocab-size", str(VOCABULARY), "--seed", "7",
               "--requests-jsonl", requests_file, "--output", f"json:{report_file}", "--quiet",
               "--drain", "600s", "--accept-client-bound", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    (output / f"{name}.err").write_text(done.stderr)
    if done.returncode not in expect:
        raise RuntimeError(f"moe-bench serve ended with {done.returncode}: {done.stderr[-500:]}")
    return done.returncode, json.loads(report_file.read_text())


def value(report, name):
    metric = report["metrics"].get(name) or {}
    if metric.get("value") is not None:
        return metric["value"]
    return (metric.get("distribution") or {}).get("mean")


def is_near(server_s, client_s, wait_s=0.0):
    """What the client sees is the server's own time, the way there and back, and a wait."""
    return server_s is not None and client_s is not None and \
        -0.001 <= client_s - server_s <= 0.05 * server_s + 0.03 + wait_s


def check_run(checks, server, run, before, after, num_requests, report):
    """The client's figures beside what the server counted and timed meanwhile."""
    expected = (num_requests + WARMUP) * OUTPUT_TOKENS
    is_vllm = server.name == "vllm"
    generated = "vllm:generation_tokens_total" if is_vllm else "llamacpp:tokens_predicted_total"
    counted = after[generated] - before[generated]
    checks.add(server.name, f"{run}: tokens on both sides",
               expected <= counted <= expected + PROBE_TOKENS,
               f"asked for {expected} with warm-up, the server counted {counted:.0f}")
    # Client and server share this machine's cores: that the client was late is said, not judged.
    errors = [f["message"] for f in report["findings"] if f["severity"] == "error"]
    is_valid = report["validity"]["valid"]
    checks.add(server.name, f"{run}: report is valid", is_valid, "; ".join(errors) or "no error")
    view = {row[1]: (row[3], row[4]) for row in
            (report["tables"].get("server_view") or {"rows": []})["rows"]}
    counts = ["generated tokens"] + (["finished requests"] if is_vllm else [])
    for quantity in counts:
        said, seen = view.get(quantity, (None, None))
        checks.add(server.name, f"{run}: {quantity} without warm-up",
                   said is not None and said == seen, f"server {said}, client {seen}")
    for quantity in ("mean time to first token", "mean latency") if is_vllm else ():
        said, seen = view.get(quantity, (None, None))
        checks.add(server.name, f"{run}: {quantity}", is_near(said, seen),
                   f"server {said} s, client {seen} s")
    return {name: value(report, name) for name in FIGURES}


def answers_in_log(server):
    """One entry for each answer: of llama.cpp {tokens, seconds}, of vLLM nothing but its line."""
    text = server.log.read_text(errors="replace")
    if server.name == "vllm":
        return re.findall(r'"POST /v1/completions HTTP/1.1" 200', text)
    times = re.findall(r"task (\d+) \| +total time = +([\d.]+) ms", text)
    tokens = dict(re.findall(r"task (\d+) \| +eval time = +[\d.]+ ms / +(\d+) tokens", text))
    return [(int(tokens[task]), float(ms) * 1e-3) for task, ms in times]


def check_log(checks, server, run, lines, num_requests, report):
    wanted = num_requests + WARMUP
    checks.add(server.name, f"{run}: requests in the log",
               wanted <= len(lines) <= wanted + PROBE_REQUESTS,
               f"{len(lines)} lines for {wanted} requests and a look at the server")
    if server.name == "vllm":
        return
    measured = lines[-num_requests:]  # those of the warm-up end before the first of these begins
    tokens = sum(count for count, _ in measured)
    checks.add(server.name, f"{run}: tokens in the log", tokens == num_requests * OUTPUT_TOKENS,
               f"log {tokens}, asked for {num_requests * OUTPUT_TOKENS}")
    mean_s = sum(seconds for _, seconds in measured) / len(measured)
    seen_s = value(report, "e2el_s")
    # The log counts from when a prompt is taken up, which waits for the steps under way; in an open
    # loop it may wait for a slot, too, for as long as the machine is slow.
    wait_s = 2.0 * mean_s / OUTPUT_TOKENS if run == "closed" else float("inf")
    checks.add(server.name, f"{run}: mean latency in the log", is_near(mean_s, seen_s, wait_s),
               f"log {mean_s:.4f} s, client {seen_s:.4f} s")


def check_loads(checks, server, binary, output):
    results = {}
    loads = [("closed", CLOSED_REQUESTS, ["--concurrency", "4"]),
             ("open", OPEN_REQUESTS, ["--rate", "1.5", "--arrivals", "poisson"])]
    for run, num_requests, options in loads:
        before, num_before = metrics(server.url), len(answers_in_log(server))
        _, report = moe_bench_serve(binary, server.url, output, f"{server.name}-{run}",
                                    "--requests", str(num_requests), "--warmup", str(WARMUP),
                                    *options)
        time.sleep(1.0)  # for the server's last line and count
        after, lines = metrics(server.url), answers_in_log(server)[num_before:]
        results[f"{server.name}, {run} loop"] = check_run(checks, server, run, before, after,
                                                          num_requests, report)
        check_log(checks, server, run, lines, num_requests, report)
    return results


def check_in_process(checks, server, binary, output):
    """The same requests to the server and to the checkpoint in process: one report."""
    report_file = output / f"{server.name}-compare.json"
    name = server.name.replace(".", "_")
    command = [binary, "compare", f"{name}={server.url}", "--in-process", f"here={CHECKPOINT}",
               "--activations", "f32", "--concurrency", "4", "--requests", str(COMPARED_REQUESTS),
               "--rounds", str(COMPARED_ROUNDS), "--prompt-tokens", str(PROMPT_TOKENS),
               "--output-tokens", str(OUTPUT_TOKENS), "--vocab-size", str(VOCABULARY), "--seed",
               "11", "--requests-jsonl", output / f"{server.name}-compare.jsonl", "--output",
               f"json:{report_file}", "--quiet", "--accept-client-bound"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"moe-bench compare: {done.returncode}: {done.stderr[-500:]}")
    report = json.loads(report_file.read_text())
    num_requests = COMPARED_REQUESTS * COMPARED_ROUNDS
    row = report["tables"]["answers"]["rows"][0]
    by_ids, by_text, equal, _, difference = row[1:6]
    # In float32 on both sides all are equal. llama.cpp keeps keys and values in f16 by default, so
    # near ties may part, and sends no ids here: its answers are compared as text.
    is_vllm = server.name == "vllm"
    compared, least_equal = (by_ids, num_requests) if is_vllm else (by_text, 0.75 * num_requests)
    checks.add(server.name, "in process: greedy tokens",
               compared == num_requests and equal >= least_equal,
               f"{equal} of {num_requests} answers equal, {by_ids} compared by ids, {by_text} by "
               f"text{'; ' + difference if difference else ''}")
    counts = {subject: value(report, f"output_tokens_count.{subject}")
              for subject in (name, "here")}
    checks.add(server.name, "in process: as many tokens on both sides",
               set(counts.values()) == {num_requests * OUTPUT_TOKENS}, str(counts))
    figures = {subject: {figure: value(report, f"{figure}.{subject}") for figure in FIGURES}
               for subject in (name, "here")}
    checks.add(server.name, "in process: figures in one report",
               all(number is not None for one in figures.values() for number in one.values()),
               ", ".join(FIGURES))
    return {f"{server.name}, compared": figures[name],
            f"in process beside {server.name}": figures["here"]}


def greedy_here(binary, prompt):
    done = subprocess.run([binary, "generate", CHECKPOINT, "--prompt-ids",
                           ",".join(map(str, prompt)), "-n", str(GREEDY_TOKENS), "--ignore-eos",
                           "--format", "json"], capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)["tables"]["generated"]["rows"][0]
    return [int(token) for token in row[0].split(",")]


def greedy_there(server, prompt):
    if server.name == "vllm":
        body = {"model": "tinymoe", "prompt": prompt, "max_tokens": GREEDY_TOKENS, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True}
        return json.loads(get(server.url + "/v1/completions", body))["choices"][0]["token_ids"]
    body = {"prompt": prompt, "n_predict": GREEDY_TOKENS, "temperature": 0, "ignore_eos": True,
            "return_tokens": True, "cache_prompt": False}
    return json.loads(get(server.url + "/completion", body))["tokens"]


def check_greedy(checks, server, binary):
    for prompt in PROMPTS:
        here, there = greedy_here(binary, prompt), greedy_there(server, prompt)
        same = next((i for i, pair in enumerate(zip(here, there)) if pair[0] != pair[1]),
                    min(len(here), len(there)))
        checks.add(server.name, f"greedy tokens after {prompt[:3]}...", here == there,
                   f"{same} of {GREEDY_TOKENS} equal")


def check_death(checks, server, binary, output):
    """The server is killed while requests run: exit 5 and a partial report that says so."""
    report_file = output / f"{server.name}-killed.json"
    command = [binary, "serve", server.url, "--concurrency", "4", "--duration", "300s",
               "--prompt-tokens", "32", "--output-tokens", "64", "--vocab-size", str(VOCABULARY),
               "--output", f"json:{report_file}", "--quiet"]
    num_before = len(answers_in_log(server))
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    # Once some requests of the run and the warm-up have been answered.
    enough = num_before + WARMUP + 8
    until = time.monotonic() + 240.0
    while len(answers_in_log(server)) < enough and time.monotonic() < until:
        time.sleep(0.2)
    server.signal_all(signal.SIGKILL)
    begin = time.monotonic()
    _, err = client.communicate(timeout=300)
    ended_s = time.monotonic() - begin
    checks.add(server.name, "killed in mid-run: exit code", client.returncode == 5,
               f"{client.returncode} after {ended_s:.1f} s {err.strip()[-160:]}")
    report = json.loads(report_file.read_text()) if report_file.exists() else None
    checks.add(server.name, "killed in mid-run: partial report",
               report is not None and report["validity"].get("partial") is True,
               "no report" if report is None else "; ".join(report["validity"]["reasons"]))
    succeeded = 0 if report is None else value(report, "requests_succeeded_count")
    checks.add(server.name, "killed in mid-run: what was answered counts", succeeded > 0,
               f"{succeeded} requests")


def print_table(summary):
    print(f"\n{'means':28}" + "".join(f"{column:>21}" for column in FIGURES))
    for name, figures in summary["figures"].items():
        cells = ["-" if figures.get(c) is None else f"{figures[c]:.4f}" for c in FIGURES]
        print(f"{name:28}" + "".join(f"{cell:>21}" for cell in cells))


def main():
    if len(sys.argv) not in (4, 5):
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    python = pathlib.Path(sys.argv[1]).resolve() / "bin" / "python"
    binary, output = pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
    checks, summary, begin = Checks(), {"figures": {}}, time.monotonic()
    starts = {"llama.cpp": start_llama, "vllm": start_vllm}
    for start in [starts[sys.argv[4]]] if len(sys.argv) == 5 else starts.values():
        server = start(python, free_port(), output)
        try:
            checks.add(server.name, "starts", True, f"{server.wait():.0f} s to the first answer")
            check_greedy(checks, server, binary)
            summary["figures"].update(check_loads(checks, server, binary, output))
            summary["figures"].update(check_in_process(checks, server, binary, output))
            check_death(checks, server, binary, output)
        except (RuntimeError, KeyError, OSError, subprocess.SubprocessError) as error:
            checks.add(server.name, "went through", False, str(error))
        finally:
            server.stop()
    summary["checks"] = checks.rows
    summary["seconds"] = round(time.monotonic() - begin, 1)
    (output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print_table(summary)
    print(f"\n{len(checks.rows) - checks.failed()} passed, {checks.failed()} failed, "
          f"{summary['seconds']:.0f} s")
    return 1 if checks.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
