"""scripts/callgrind.py: verdicts and exit codes, with a valgrind that counts what it is told."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "callgrind.py"
RECORDED = SCRIPT.parents[1] / "tests" / "data" / "callgrind" / "counts.json"

# Runs the driver, and writes one file for each of its cases with the counts of COUNTS.
VALGRIND = """#!/usr/bin/env python3
import os, subprocess, sys
out = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--callgrind-out-file=")][0]
for number, count in enumerate(os.environ["COUNTS"].split(), 1):
    open(f"{out}.{number}", "w").write(f"fn=x\\ntotals: {count}\\n")
sys.exit(subprocess.run(sys.argv[-2:-1]).returncode)
"""


class Verdicts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.write("valgrind", VALGRIND)
        self.set_driver("release", "1.2")
        self.counts = self.folder / "counts.json"
        self.counts.write_text(json.dumps({"compiler": "1.2", "tolerance_ratio": 0.03,
                                           "instructions": {"a": 1000, "b": 2000}}))

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def set_driver(self, build, compiler):
        self.write("driver", f"#!/bin/sh\nprintf 'compiler {compiler}\\nbuild {build}\\n"
                             "case a\\ncase b\\n'\n")

    def run_script(self, counts, *arguments):
        environment = dict(os.environ, COUNTS=counts,
                           PATH=f"{self.folder}:{os.environ['PATH']}")
        return subprocess.run([sys.executable, SCRIPT, self.folder / "driver", "--counts",
                               self.counts, *arguments], env=environment, capture_output=True,
                              text=True, check=False)

    def test_a_little_more_passes(self):
        run = self.run_script("1030 2000")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("1.030", run.stdout)

    def test_more_than_the_tolerance_ends_with_6_and_says_which(self):
        run = self.run_script("1031 1000")
        self.assertEqual(run.returncode, 6, run.stderr)
        self.assertRegex(run.stdout, r"a +1000 +1031 +1\.031  MORE")
        self.assertIn("record it", run.stdout)
        self.assertEqual(self.run_script("1031 1000", "--tolerance", "0.05").returncode, 0)

    def test_another_compiler_and_a_debug_build_are_skipped(self):
        self.set_driver("release", "1.3")
        self.assertEqual(self.run_script("1000 2000").returncode, 77)
        self.set_driver("debug", "1.2")
        self.assertEqual(self.run_script("1000 2000").returncode, 77)

    def test_a_count_of_nothing_is_no_measurement(self):
        self.assertEqual(self.run_script("0 2000").returncode, 5)
        self.assertEqual(self.run_script("1000").returncode, 5)

    def test_what_is_recorded_compares_as_equal(self):
        self.assertEqual(self.run_script("5 6", "--record").returncode, 0)
        self.assertEqual(json.loads(self.counts.read_text())["instructions"], {"a": 5, "b": 6})
        self.assertEqual(self.run_script("5 6").returncode, 0)

    def test_a_damaged_record_is_refused(self):
        self.counts.write_text('{"compiler": "1.2"}')
        self.assertEqual(self.run_script("1000 2000").returncode, 3)

    def test_the_recorded_cases_cover_the_hot_kernels(self):
        names = json.loads(RECORDED.read_text())["instructions"]
        for level in ("scalar", "avx2"):
            for rows in (1, 8, 32):
                self.assertIn(f"gemm/{level}/bf16/{rows}", names)
            self.assertIn(f"attention/{level}/decode_1024", names)
        self.assertIn("tokenizer_encode", names)


if __name__ == "__main__":
    unittest.main()
