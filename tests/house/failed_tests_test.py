"""scripts/failed_tests.py: what failed is told, what passed or skipped is not."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "failed_tests.py"

# Each way in which a test can end; a shell stands for a program.
TESTS = """
add_test(good "true")
add_test(said "bash" "-c" "seq 100; printf '\\033[1m\\001<&>'; exit 3")
add_test(skips_itself "bash" "-c" "exit 77")
set_tests_properties(skips_itself PROPERTIES SKIP_RETURN_CODE 77)
add_test(skips_by_word "echo" "SKIPPED")
set_tests_properties(skips_by_word PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED")
add_test(off "false")
set_tests_properties(off PROPERTIES DISABLED TRUE)
add_test(no_program "/nowhere/at/all")
add_test(too_long "sleep" "60")
set_tests_properties(too_long PROPERTIES TIMEOUT 1)
"""


def run_script(*arguments):
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True,
                          check=False)


class FailedTests(unittest.TestCase):
    def test_tells_what_failed_and_the_end_of_its_output(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "CTestTestfile.cmake").write_text(TESTS)
            results = f"{folder}/results.xml"
            subprocess.run(["ctest", "--test-dir", folder, "--output-junit", results],
                           capture_output=True, check=False)
            told = run_script(results, f"{folder}/not_there.xml")
        self.assertEqual(told.returncode, 0, told.stderr)
        names = [line.split()[1] for line in told.stdout.splitlines() if line.startswith("FAILED ")]
        self.assertEqual(names, ["said", "no_program", "too_long"])
        self.assertIn("(61 lines before)\n    62\n", told.stdout)
        self.assertIn("    100\n", told.stdout)
        self.assertNotIn("    61\n", told.stdout)
        self.assertIn("FAILED too_long after 1.", told.stdout)
        self.assertIn("Unable to find executable: /nowhere/at/all", told.stdout)

    def test_nothing_to_tell_is_nothing(self):
        told = run_script("/nowhere/results.xml")
        self.assertEqual((told.returncode, told.stdout), (0, ""))

    def test_wrong_use_is_refused(self):
        for arguments in ((), ("--help",)):
            told = run_script(*arguments)
            self.assertEqual(told.returncode, 2)
            self.assertTrue(told.stderr.startswith("usage: "))


if __name__ == "__main__":
    unittest.main()
