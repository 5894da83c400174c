"""scripts/compare_bench.py: known p-values, verdicts and exit codes."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "compare_bench.py"
sys.path.insert(0, str(SCRIPT.parent))
import compare_bench  # noqa: E402


def two_samples_with_u(n, u):
    """Two samples of n distinct values whose smaller U statistic is u."""
    # The first sample takes the ranks 1..n, then its largest values move up by u in all.
    ranks = list(range(1, n + 1))
    for position in reversed(range(n)):
        step = min(u, n)
        ranks[position] += step
        u -= step
    rest = [rank for rank in range(1, 2 * n + 1) if rank not in ranks]
    return ranks, rest


class MannWhitney(unittest.TestCase):
    def test_smallest_possible_p(self):
        # 2 of the 252 ways to split ten values are this extreme.
        self.assertAlmostEqual(compare_bench.mann_whitney_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]),
                               2 / 252)

    def test_published_critical_values(self):
        # Two-sided 5 % critical values of U (Mann-Whitney tables): 17 for n = m = 9, 23 for 10.
        for n, critical in ((5, 2), (8, 13), (9, 17), (10, 23)):
            self.assertLessEqual(compare_bench.mann_whitney_p(*two_samples_with_u(n, critical)),
                                 0.05)
            self.assertGreater(compare_bench.mann_whitney_p(*two_samples_with_u(n, critical + 1)),
                               0.05)
        # The normal law takes over above n = 10; the table's value for n = m = 20 is 127.
        self.assertLess(compare_bench.mann_whitney_p(*two_samples_with_u(20, 127)), 0.05)
        self.assertGreater(compare_bench.mann_whitney_p(*two_samples_with_u(20, 129)), 0.05)

    def test_equal_samples_are_not_told_apart(self):
        self.assertEqual(compare_bench.mann_whitney_p([3.0] * 12, [3.0] * 12), 1.0)
        self.assertEqual(compare_bench.mann_whitney_p([3.0] * 5, [3.0] * 5), 1.0)


class Script(unittest.TestCase):
    def run_script(self, baseline, contender):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, times in (("a.json", baseline), ("b.json", contender)):
                path = Path(folder) / name
                path.write_text(times if isinstance(times, str) else json.dumps({"benchmarks": [
                    {"run_name": "BM_gemm", "run_type": "iteration", "real_time": time,
                     "cpu_time": time, "time_unit": "us"} for time in times] + [
                    {"run_name": "BM_gemm", "run_type": "aggregate", "real_time": 1e9,
                     "cpu_time": 1e9, "time_unit": "us"}]}))
                paths.append(str(path))
            return subprocess.run([sys.executable, str(SCRIPT), *paths], capture_output=True,
                                  text=True)

    BASELINE = [100, 101, 99, 102, 98, 100.5, 99.5, 101.5, 98.5]

    def test_same(self):
        result = self.run_script(self.BASELINE, self.BASELINE)
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"BM_gemm +100\.00 us +100\.00 us +1\.000 +1\.0000 +same")

    def test_slower_fails_and_faster_does_not(self):
        slow = [time * 1.2 for time in self.BASELINE]
        result = self.run_script(self.BASELINE, slow)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"1\.200 +0\.000\d +slower")
        result = self.run_script(slow, self.BASELINE)
        self.assertEqual(result.returncode, 0)
        self.assertIn("faster", result.stdout)

    def test_small_difference_is_not_a_regression_however_sure(self):
        self.assertEqual(
            self.run_script(self.BASELINE, [t * 1.05 for t in self.BASELINE]).returncode, 0)

    def test_noise_is_not_a_regression_however_large(self):
        self.assertEqual(self.run_script([100, 300, 100, 300, 100], [300, 100, 300, 100, 300]
                                         ).returncode, 0)

    def test_too_few_repetitions_prove_nothing(self):
        self.assertEqual(self.run_script([100, 100], [200, 200]).returncode, 7)

    def test_unreadable_input(self):
        self.assertEqual(self.run_script("{", self.BASELINE).returncode, 3)


if __name__ == "__main__":
    unittest.main()
