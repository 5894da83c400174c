#!/usr/bin/env python3
"""Counts the instructions of the hot kernels below AVX-512 with callgrind, and compares them with
the recorded counts: a regression shows without a quiet machine.

    scripts/callgrind.py [DRIVER] [--only PREFIX] [--tolerance RATIO] [--record] [--counts FILE]

DRIVER is callgrind_driver of a release build (build/release/bench-bin/callgrind_driver). Counts
are those of one compiler; the recorded file says which.

    --only PREFIX      only the cases whose name begins with PREFIX (gemm/avx2)
    --tolerance RATIO  how much more than recorded is let pass; default: what the file says
    --record           write the counts instead of comparing them
    --counts FILE      default: tests/data/callgrind/counts.json

Exit status: 0 nothing regressed, 2 usage, 3 unreadable input, 5 the driver or valgrind failed,
6 more instructions than recorded, 77 skipped: no valgrind, no driver, a debug build or another
compiler than that of the recorded counts.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT_TOLERANCE = 0.03


class Failure(Exception):
    """Ends the run with this exit status."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver", nargs="?", type=pathlib.Path,
                        default=ROOT / "build/release/bench-bin/callgrind_driver")
    parser.add_argument("--only", default="")
    parser.add_argument("--tolerance", type=float)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--counts", type=pathlib.Path,
                        default=ROOT / "tests/data/callgrind/counts.json")
    arguments = parser.parse_args(argv)
    if arguments.tolerance is not None and not arguments.tolerance >= 0:
        parser.error("--tolerance: expected 0 or more")
    if arguments.record and arguments.only:
        parser.error("--record writes all cases: leave out --only")
    return arguments


def parse_driver_output(text):
    """(what was built, names of the cases in order) of the driver's lines."""
    facts, cases = {}, []
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "case":
            cases.append(value)
        else:
            facts[key] = value
    if not cases or "compiler" not in facts or "build" not in facts:
        raise Failure(5, "the driver printed no cases; is it callgrind_driver, and does the "
                         "prefix name any?")
    return facts, cases


def parse_total(text, where):
    """The instructions that a callgrind file counts in all."""
    match = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
    if match is None:
        raise Failure(5, f"{where}: no totals in callgrind's file")
    return int(match.group(1))


def count(driver, prefix):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        # One file each time the function is left, with what was counted inside it.
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no",
             "--toggle-collect=moe_counted_work", "--dump-after=moe_counted_work", str(driver),
             prefix], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise Failure(5, f"{driver}: exit status {run.returncode} under valgrind: "
                             f"{run.stderr.strip()[-500:]}")
        facts, cases = parse_driver_output(run.stdout)
        counts = {}
        for number, name in enumerate(cases, 1):
            path = pathlib.Path(f"{out}.{number}")
            if not path.is_file():
                raise Failure(5, f"{name}: callgrind wrote no file for it")
            counts[name] = parse_total(path.read_text(encoding="utf-8"), name)
            if counts[name] == 0:
                raise Failure(5, f"{name}: no instruction was counted")
    return facts, counts


def read_recorded(path):
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(value, int) and value > 0
                   for value in recorded["instructions"].values()):
            raise ValueError("counts are not positive numbers")
        float(recorded["tolerance_ratio"])
        str(recorded["compiler"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(3, f"{path}: {error}; make it with --record") from error
    return recorded


def compare(counts, recorded, tolerance):
    """Prints the table; returns the names of the cases that regressed."""
    width = max(len(name) for name in counts)
    print(f"{'case':<{width}} {'recorded':>12} {'now':>12} {'ratio':>7}")
    regressed = []
    for name, now in counts.items():
        before = recorded.get(name)
        if before is None:
            print(f"{name:<{width}} {'-':>12} {now:>12} {'new':>7}")
            continue
        ratio = now / before
        mark = ""
        if ratio > 1 + tolerance:
            mark = "  MORE"
            regressed.append(name)
        elif ratio < 1 - tolerance:
            mark = "  less: record it"
        print(f"{name:<{width}} {before:>12} {now:>12} {ratio:>7.3f}{mark}")
    return regressed


def valgrind_version():
    run = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=False)
    return run.stdout.strip()


def record(path, facts, counts):
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "what": "instructions of one call of each case of tests/bench/callgrind_driver.cpp, "
                "counted by scripts/callgrind.py --record",
        "compiler": facts["compiler"],
        "flags": "those of the release preset (-O3 -DNDEBUG)",
        "valgrind": valgrind_version(),
        "tolerance_ratio": DEFAULT_TOLERANCE,
        "instructions": counts,
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{len(counts)} cases written to {path}")


def main(argv):
    arguments = parse_arguments(argv)
    if shutil.which("valgrind") is None:
        raise Failure(77, "skipped: valgrind is not installed (package valgrind)")
    if not arguments.driver.is_file():
        raise Failure(77, f"skipped: {arguments.driver} is not there; build callgrind_driver "
                          "with the release preset")
    recorded = None if arguments.record else read_recorded(arguments.counts)
    facts, counts = count(arguments.driver, arguments.only)
    if facts["build"] != "release":
        raise Failure(77, f"skipped: a {facts['build']} build; the counts are those of a release "
                          "build")
    if recorded is None:
        record(arguments.counts, facts, counts)
        return 0
    if facts["compiler"] != recorded["compiler"]:
        raise Failure(77, f"skipped: built with {facts['compiler']}, recorded with "
                          f"{recorded['compiler']}")
    tolerance = arguments.tolerance
    if tolerance is None:
        tolerance = float(recorded["tolerance_ratio"])
    expected = [name for name in recorded["instructions"] if name.startswith(arguments.only)]
    missing = [name for name in expected if name not in counts]
    if missing:
        print(f"recorded, and not run here: {', '.join(missing)}", file=sys.stderr)
    regressed = compare(counts, recorded["instructions"], tolerance)
    if regressed:
        raise Failure(6, f"{len(regressed)} of {len(counts)} cases take more than "
                         f"{1 + tolerance:.3f} x the recorded instructions; make them cheaper, or "
                         "record the new counts and say why")
    print(f"{len(counts)} cases, none above {1 + tolerance:.3f} x the recorded instructions")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        print(f"callgrind.py: {failure}", file=sys.stderr)
        sys.exit(failure.status)
    except BrokenPipeError:
        sys.exit(1)
