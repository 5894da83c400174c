#!/usr/bin/env python3
"""Prints the tests that failed, by name, with the end of what each printed.

    scripts/failed_tests.py RESULTS.xml...

RESULTS.xml is what `ctest --output-junit` wrote; one that is not there is passed over, as its tests
did not run. Exit status 0 whatever failed: it tells, the caller judges.
"""

import sys
import xml.etree.ElementTree
from pathlib import Path

MAX_LINES = 40
MAX_TESTS = 20


def failed_tests(path):
    """(name, seconds, lines it printed) of each test that failed or has no program."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        # A test that skips itself carries the rule by which ctest knew (SKIP_RETURN_CODE=77, ...).
        skipped = case.find("skipped")
        no_program = skipped is not None and not skipped.get("message", "").startswith("SKIP_")
        if case.get("status") == "fail" or no_program:
            yield (case.get("name"), float(case.get("time", 0)),
                   case.findtext("system-out", "").splitlines())


def describe(name, seconds, lines):
    left_out = [f"({len(lines) - MAX_LINES} lines before)"] if len(lines) > MAX_LINES else []
    return "\n    ".join([f"FAILED {name} after {seconds:.1f} s", *left_out, *lines[-MAX_LINES:]])


def main(arguments):
    if not arguments or any(argument.startswith("-") for argument in arguments):
        print("usage: scripts/failed_tests.py RESULTS.xml...", file=sys.stderr)
        return 2
    failures = [failure for path in map(Path, arguments) if path.exists()
                for failure in failed_tests(path)]
    for failure in failures[:MAX_TESTS]:
        print(describe(*failure))
    if len(failures) > MAX_TESTS:
        print(f"and {len(failures) - MAX_TESTS} more")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
