"""scripts/compare_clients.py: the truth from the server's log, TTFT of a report, refusals."""

import argparse
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import compare_clients  # noqa: E402


def request(arrived, started, first, end="complete"):
    return {"arrived_s": arrived, "started_s": started, "end": end, "tokens": 2, "sends": [
        {"due_s": 0.0, "left_s": 0.001, "tokens": 0},
        {"due_s": first, "left_s": first + 0.002, "tokens": 1},
        {"due_s": first + 1, "left_s": first + 1, "tokens": 1}]}


class Truth(unittest.TestCase):
    def test_first_token_counts_not_the_first_bytes(self):
        ttfts, lag, tokens = compare_clients.truth_of([request(10.0, 10.5, 0.25)])
        self.assertAlmostEqual(ttfts[0], 0.752)
        self.assertAlmostEqual(lag, 0.002)
        self.assertEqual(tokens, 2)

    def test_incomplete_requests_have_tokens_but_no_ttft(self):
        ttfts, _, tokens = compare_clients.truth_of([request(0, 0, 0.2, end="cut")])
        self.assertEqual((ttfts, tokens), ([], 2))


class Reports(unittest.TestCase):
    def test_own_p99_of_a_tool_without_samples(self):
        report = {"metrics": {"ttft_s": {"distribution": {"mean": 0.5, "p99": None}}}, "tables": {
            "as_printed": {"columns": [{"name": "metric"}, {"name": "p99"}],
                           "rows": [["itl_s", 0.1], ["ttft_s", 0.7]]}}}
        self.assertEqual(compare_clients.ttft_of(report), (0.5, 0.7))

    def test_no_report_has_no_ttft(self):
        self.assertEqual(compare_clients.ttft_of(None), (None, None))

    def test_a_client_that_failed_is_named(self):
        rows = [{"client": "vllm", "streams": 10, "exit": 0, "ttft_error_mean_s": 0.0},
                {"client": "aiperf", "streams": 10, "exit": 0},
                {"client": "guidellm", "streams": 10, "exit": 1, "ttft_error_mean_s": 0.0}]
        lines = compare_clients.failures(rows, Path("out"))
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], "aiperf at 10 streams: exit status 0, no TTFT")
        self.assertIn("guidellm-10", lines[1])


class Commands(unittest.TestCase):
    def test_every_client_gets_the_same_load(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            args = argparse.Namespace(moe_bench="moe-bench", tokenizer=out, tokens=20, vllm="v",
                                      aiperf="a", guidellm="g", inference_perf="i")
            for client, command in compare_clients.COMMANDS.items():
                parts, report, _ = command(args, "http://127.0.0.1:1", 7, out)
                text = " ".join(map(str, parts))
                config = out / "config.yaml"
                if client == "inference-perf":
                    text = config.read_text()
                self.assertRegex(text, r"\b7\b", client)
                self.assertRegex(text, r"\b14\b", client)
                self.assertRegex(text, r"\b20\b", client)
                self.assertEqual(report.suffix, ".json")


class Refusals(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, str(ROOT / "scripts" / "compare_clients.py"),
                               "--moe-bench", "moe-bench", *arguments], capture_output=True,
                              text=True)

    def test_environment_without_the_client(self):
        with tempfile.TemporaryDirectory() as folder:
            for client in compare_clients.CLIENTS[1:]:
                done = self.run_script(f"--{client}", folder, "--tokenizer", folder)
                self.assertEqual(done.returncode, 4)
                self.assertRegex(done.stderr, rf"^compare_clients: --{client}: [^\n]+\n$")

    def test_folder_without_a_tokenizer(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_script("--tokenizer", folder)
            self.assertEqual(done.returncode, 4)
            self.assertRegex(done.stderr, r"^compare_clients: --tokenizer [^\n]+\n$")

    def test_others_need_a_tokenizer(self):
        self.assertEqual(self.run_script("--vllm", "x").returncode, 2)


if __name__ == "__main__":
    unittest.main()
