#!/usr/bin/env python3
"""Run several benchmark clients against `moe-bench scripted-server` and print them side by side.

Called by scripts/compare_clients.sh, which says how. Every client sends two requests a stream, all
streams at once. The truth of a request is when the server wrote its first token after the request
had arrived. CPU seconds are those of the client's process and of all that it started; between two
numbers of streams the difference is also given, in which the start of the program cancels out.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

CLIENTS = ("moe-bench", "vllm", "aiperf", "guidellm", "inference-perf")
PROMPT_TOKENS = 8
TIMEOUT_S = 900


def percentile(values, p):
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * p // 100) - 1)] if ordered else None


class ScriptedServer:
    def __init__(self, moe_bench, script, log):
        self.log = log
        self.process = subprocess.Popen(
            [moe_bench, "scripted-server", script, "--port", "0", "--log", log, "--quiet"],
            stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url.startswith("http://"):
            sys.exit("the scripted server did not start")

    def stop(self):
        """Requests of the log, as the server saw them."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)
        return [json.loads(line) for line in self.log.open()]


def truth_of(requests):
    """TTFT of each complete request, how late the server was itself, and the tokens it sent."""
    ttfts, lags, tokens = [], [], 0
    for request in requests:
        tokens += request["tokens"]
        sends = request["sends"]
        lags += [send["left_s"] - send["due_s"] for send in sends]
        first = next((send["left_s"] for send in sends if send["tokens"] > 0), None)
        if request["end"] == "complete" and first is not None:
            ttfts.append(first + request["started_s"] - request["arrived_s"])
    return ttfts, percentile(lags, 99), tokens


def moe_bench_command(args, url, streams, out):
    return [args.moe_bench, "serve", url, "--concurrency", streams, "--requests", 2 * streams,
            "--warmup", 0, "--prompt-tokens", PROMPT_TOKENS, "--output-tokens", args.tokens,
            "--output", f"json:{out / 'report.json'}", "--format", "none", "--no-metrics",
            "--accept-client-bound", "--quiet"], out / "report.json", None


def vllm_command(args, url, streams, out):
    return [program_of(args, "vllm"), "bench", "serve", "--backend", "openai",
            "--base-url", url, "--endpoint", "/v1/completions", "--model", "scripted",
            "--tokenizer", args.tokenizer, "--dataset-name", "random", "--random-input-len",
            PROMPT_TOKENS, "--random-output-len", args.tokens, "--num-prompts", 2 * streams,
            "--max-concurrency", streams, "--save-result", "--save-detailed", "--result-dir", out,
            "--result-filename", "report.json", "--disable-tqdm", "--percentile-metrics",
            "ttft,tpot,itl,e2el"], out / "report.json", None


def aiperf_command(args, url, streams, out):
    return [program_of(args, "aiperf"), "profile", "--model", "scripted", "--url",
            url, "--endpoint-type", "completions", "--streaming", "--concurrency", streams,
            "--request-count", 2 * streams, "--isl", PROMPT_TOKENS, "--osl", args.tokens,
            "--tokenizer", args.tokenizer, "--ui", "none", "--artifact-dir", out,
            ], out / "profile_export_aiperf.json", out / "profile_export.jsonl"


def guidellm_command(args, url, streams, out):
    backend = f"kind=openai_http,target={url},model=scripted,request_format=/v1/completions"
    data = f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={args.tokens}"
    return [program_of(args, "guidellm"), "run", "--backend", backend,
            "--profile", f"kind=concurrent,streams={streams}", "--constraint",
            f"kind=max_requests,count={2 * streams}", "--data", data, "--tokenizer",
            f"kind=huggingface_auto,model={args.tokenizer}", "--output",
            f"kind=json,path={out / 'report.json'}"], out / "report.json", None


def inference_perf_command(args, url, streams, out):
    config = {
        "api": {"type": "completion", "streaming": True},
        "load": {"type": "concurrent", "stages": [{"num_requests": 2 * streams,
                                                   "concurrency_level": streams}]},
        "data": {"type": "random",
                 "input_distribution": {"min": PROMPT_TOKENS, "max": PROMPT_TOKENS,
                                        "mean": PROMPT_TOKENS, "std_dev": 0,
                                        "total_count": 2 * streams},
                 "output_distribution": {"min": args.tokens, "max": args.tokens,
                                         "mean": args.tokens, "std_dev": 0,
                                         "total_count": 2 * streams}},
        "server": {"type": "vllm", "model_name": "scripted", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(args.tokenizer)},
        "storage": {"local_storage": {"path": str(out)}},
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": True}},
    }
    # JSON is YAML too.
    (out / "config.yaml").write_text(json.dumps(config))
    command = [program_of(args, "inference-perf"), "-c", out / "config.yaml"]
    return command, out / "summary_lifecycle_metrics.json", \
        out / "per_request_lifecycle_metrics.json"


COMMANDS = {"moe-bench": moe_bench_command, "vllm": vllm_command, "aiperf": aiperf_command,
            "guidellm": guidellm_command, "inference-perf": inference_perf_command}


def run_client(command, log):
    """Exit code and CPU seconds, children included."""
    with log.open("w") as out:
        # Offline, AIPerf takes no tokenizer from a folder.
        environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=out,
                                   start_new_session=True, env=environment)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
            if time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.05)


def report_of(args, client, file, records, out):
    """The client's report in moe-bench's form."""
    if client == "moe-bench":
        return json.loads(file.read_text())
    command = [args.moe_bench, "import", file, "--format", "json"]
    if records is not None and records.exists():
        command += ["--records", records]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    (out / "import.err").write_text(done.stderr)
    return json.loads(done.stdout) if done.stdout else None


def ttft_of(report):
    """Mean and p99 of TTFT; the tool's own p99 where it kept no samples."""
    metric = (report or {}).get("metrics", {}).get("ttft_s") or {}
    distribution = metric.get("distribution") or {}
    p99 = distribution.get("p99")
    table = (report or {}).get("tables", {}).get("as_printed")
    if p99 is None and table:
        names = [column["name"] for column in table["columns"]]
        p99 = next((row[names.index("p99")] for row in table["rows"] if row[0] == "ttft_s"), None)
    return distribution.get("mean"), p99 if p99 is not None else distribution.get("max")


def measure(args, client, streams, folder):
    out = folder / f"{client}-{streams}"
    # A report of an earlier run must not pass for this one's.
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    server = ScriptedServer(args.moe_bench, args.script, out / "sends.jsonl")
    try:
        command, file, records = COMMANDS[client](args, server.url, streams, out)
        exit_code, cpu_s = run_client(command, out / "client.log")
    finally:
        requests = server.stop()
    ttfts, lag_s, tokens = truth_of(requests)
    report = report_of(args, client, file, records, out) if file.exists() else None
    mean, p99 = ttft_of(report)
    row = {"client": client, "streams": streams, "exit": exit_code, "cpu_s": cpu_s,
           "tokens": tokens, "server_lag_p99_s": lag_s, "complete": len(ttfts)}
    if ttfts and mean is not None:
        row["ttft_error_mean_s"] = mean - sum(ttfts) / len(ttfts)
    if ttfts and p99 is not None:
        row["ttft_error_p99_s"] = p99 - percentile(ttfts, 50)
    return row


def print_rows(rows):
    print(f"{'client':16}{'streams':>8}{'complete':>10}{'TTFT error ms':>15}{'p99 ms':>10}"
          f"{'CPU s':>9}{'CPU s/1000 tok':>16}{'slope':>9}{'server p99 ms':>15}{'exit':>6}")
    before = {}
    for row in rows:
        def ms(key):
            return f"{row[key] * 1e3:.2f}" if row.get(key) is not None else "-"
        each = row["cpu_s"] / row["tokens"] * 1e3 if row["tokens"] else None
        slope = "-"
        last = before.get(row["client"])
        if last and row["tokens"] > last["tokens"]:
            slope = f"{(row['cpu_s'] - last['cpu_s']) / (row['tokens'] - last['tokens']) * 1e3:.4f}"
        before[row["client"]] = row
        print(f"{row['client']:16}{row['streams']:>8}{row['complete']:>10}"
              f"{ms('ttft_error_mean_s'):>15}{ms('ttft_error_p99_s'):>10}{row['cpu_s']:>9.2f}"
              f"{'-' if each is None else format(each, '.4f'):>16}{slope:>9}"
              f"{ms('server_lag_p99_s'):>15}{row['exit']:>6}")


def program_of(args, client):
    return pathlib.Path(getattr(args, client.replace("-", "_"))) / "bin" / client


def missing(args, clients):
    """One line on the first thing given that is not there, or None."""
    for client in clients:
        if client != "moe-bench" and not program_of(args, client).exists():
            return f"--{client}: {program_of(args, client)} is not there"
    if args.tokenizer and not (args.tokenizer / "tokenizer.json").exists():
        return f"--tokenizer {args.tokenizer}: no tokenizer.json in it"
    return None


def failures(rows, folder):
    """A line for each run that ended badly or left no report that could be read."""
    return [f"{row['client']} at {row['streams']} streams: exit status {row['exit']}, "
            f"{'no TTFT in its report' if 'ttft_error_mean_s' not in row else 'report read'}; see "
            f"{folder / (row['client'] + '-' + str(row['streams'])) / 'client.log'}"
            for row in rows if row["exit"] != 0 or "ttft_error_mean_s" not in row]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--moe-bench", required=True)
    parser.add_argument("--tokenizer", default="")
    for client in CLIENTS[1:]:
        parser.add_argument(f"--{client}", default="", metavar="ENV")
    parser.add_argument("--streams", default="100,1000")
    parser.add_argument("--script", default="slow")
    parser.add_argument("--tokens", type=int, default=20, help="asked for by every request")
    parser.add_argument("--out", default="build/compare-clients")
    args = parser.parse_args()
    given = [c for c in CLIENTS if c == "moe-bench" or getattr(args, c.replace("-", "_"))]
    if len(given) > 1 and not args.tokenizer:
        parser.error("the other clients need --tokenizer DIR")
    if args.tokenizer:
        args.tokenizer = pathlib.Path(args.tokenizer).resolve()
    problem = missing(args, given)
    if problem:
        print(f"compare_clients: {problem}", file=sys.stderr)
        return 4
    folder = pathlib.Path(args.out).resolve()
    rows = []
    interrupted = False
    try:
        for client in given:
            for streams in (int(n) for n in args.streams.split(",")):
                rows.append(measure(args, client, streams, folder))
                print(f"{client} at {streams} streams: done", file=sys.stderr)
    except KeyboardInterrupt:
        interrupted = True
        print("compare_clients: interrupted; what was measured follows", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(rows, indent=2) + "\n")
    print_rows(rows)
    failed = failures(rows, folder)
    for line in failed:
        print(f"compare_clients: {line}", file=sys.stderr)
    return 5 if failed or interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
