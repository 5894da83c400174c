"""scripts/measure_load.py: sizes, what counts, the verdict, and a run of the real binary.

    tests/house/measure_load_test.py BUILD_DIR
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "measure_load.py"
sys.path.insert(0, str(ROOT / "scripts"))
import measure_load  # noqa: E402


def a_round(rate=2e9, peak=1.05, disk=0):
    return {"bytes_per_s": rate, "peak_ratio": peak, "disk_bytes": disk}


class Sizes(unittest.TestCase):
    def config(self, name):
        return json.loads((ROOT / "scenarios" / "models" / f"{name}.json").read_text())

    def test_parameters_of_published_models(self):
        # 6.92, 46.7 and 30.5 billion by their model cards.
        for name, billions in (("OLMoE-1B-7B", 6.92), ("Mixtral-8x7B-v0.1", 46.7),
                               ("Qwen3-30B-A3B", 30.5)):
            config = self.config(name)
            layer, rest = measure_load.layer_parameters(config)
            total = layer * config["num_hidden_layers"] + rest
            self.assertAlmostEqual(total / 1e9, billions, delta=0.05, msg=name)

    def test_layers_come_closest_to_the_size(self):
        config = self.config("OLMoE-1B-7B")
        self.assertEqual([measure_load.layers_for(config, gb * 1e9) for gb in (0.1, 2.2, 14, 99)],
                         [1, 2, 16, 16])


class Verdict(unittest.TestCase):
    FILE = 10**9

    def test_median_of_the_cached_rounds(self):
        rounds = [a_round(0.1e9, disk=10**9), a_round(1.2e9), a_round(1.0e9), a_round(3e9)]
        text, status = measure_load.verdict(rounds, self.FILE)
        self.assertEqual(status, 0)
        self.assertIn("3 of 4 rounds", text)
        self.assertIn("1.20 GB/s", text)

    def test_too_slow_and_too_large(self):
        self.assertEqual(measure_load.verdict([a_round(0.99e9)], self.FILE)[1], 1)
        self.assertEqual(measure_load.verdict([a_round(peak=1.16)], self.FILE)[1], 1)
        self.assertEqual(measure_load.verdict([a_round(1e9, 1.15)], self.FILE)[1], 0)

    def test_from_disk_is_no_measurement(self):
        self.assertEqual(measure_load.verdict([a_round(disk=2 * 10**6)], self.FILE)[1], 7)

    def test_figures(self):
        report = {"metrics": {"load_s": {"value": 2.0}, "memory_weight_bytes": {"value": 1000.0}}}
        usage = SimpleNamespace(ru_maxrss=2, ru_inblock=3)
        figures = measure_load.figures_of(report, 5000, usage)
        self.assertEqual((figures["bytes_per_s"], figures["peak_ratio"], figures["disk_bytes"]),
                         (2500.0, 2.048, 1536))


class RealBinary(unittest.TestCase):
    def run_script(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, SCRIPT, "--dir", folder, *arguments],
                                  capture_output=True, text=True)
            self.assertEqual(list(Path(folder).iterdir()), [], "the checkpoint is removed")
        return done

    def test_a_small_model_is_loaded_and_judged(self):
        # One layer of a small shape; how fast it loads is for a quiet machine to say.
        done = self.run_script("--moe-bench", BINARY, "--model", "Granite-3.0-1B-A400M", "--size",
                               "0.1", "--rounds", "1", "--threads", "1")
        self.assertIn(done.returncode, (0, 1, 7), done.stderr)
        self.assertRegex(done.stdout, r"^round 1: \d+\.\d\d GB in 1 layers, \d+\.\d\d GB/s, peak ")

    def test_what_is_not_there_is_one_line(self):
        done = self.run_script("--moe-bench", "/no/such/binary")
        self.assertEqual((done.returncode, done.stderr),
                         (4, "measure_load: /no/such/binary is not there\n"))

    def test_usage(self):
        for arguments in (("--size", "0"), ("--model", "no-such-model"), ("--rounds", "0")):
            done = self.run_script("--moe-bench", BINARY, *arguments)
            self.assertEqual(done.returncode, 2, arguments)

    def test_a_failing_binary_is_one_line(self):
        done = self.run_script("--moe-bench", "/bin/false")
        self.assertEqual(done.returncode, 5)
        self.assertTrue(re.fullmatch(r"measure_load: moe-bench synth: ended with 1: ?\n",
                                     done.stderr), done.stderr)


if __name__ == "__main__":
    BINARY = str(Path(sys.argv.pop(1)) / "bin" / "moe-bench")
    unittest.main()
