#!/usr/bin/env python3
"""Runs the commands of the documents as a reader would.

    tests/house/readme_test.py BUILD_DIR

Every ```sh block of README.md and CONTRIBUTING.md is run with bash, which stops at the first
command that fails, in a scratch folder that looks like the project's after a build. The comment
"<!-- not run: reason -->" on the line before a block leaves it out; that is for the scripts that
build the project, which test.sh itself runs, and for nothing else.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md")
TIMEOUT_S = 240
# What a block that is not run may consist of.
MAY_BE_LEFT_OUT = re.compile(r"^(scripts/\w+\.sh|git|cd|sudo apt-get|#)( |$)")


def blocks_of(text):
    """(line number, commands, reason not to run or None) of every ```sh block."""
    blocks = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        if lines[number].strip() == "```sh":
            above = lines[number - 1] if number > 0 else ""
            reason = re.fullmatch(r"<!-- not run: (.+) -->", above.strip())
            end = lines.index("```", number)
            blocks.append((number + 1, lines[number + 1:end], reason and reason.group(1)))
            number = end
        number += 1
    return blocks


def make_scratch(folder, build_dir):
    """Links to all that the project holds; reports/out and what a command writes stay here."""
    for entry in ROOT.iterdir():
        if entry.name not in ("build", "reports", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "reports" / "out").mkdir(parents=True)
    for entry in (ROOT / "reports").iterdir():
        if entry.name != "out":
            (folder / "reports" / entry.name).symlink_to(entry)
    (folder / "build").mkdir()
    (folder / "build" / "release").symlink_to(build_dir)


def run_block(commands, folder):
    """None, or what went wrong."""
    try:
        result = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
                                cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"took more than {TIMEOUT_S} s"
    if result.returncode != 0:
        return f"exit status {result.returncode}\n{result.stdout}{result.stderr}"
    return None


def check_document(name, folder):
    num_run = 0
    failures = []
    for line, commands, reason in blocks_of((ROOT / name).read_text(encoding="utf-8")):
        place = f"{name}:{line}"
        if reason:
            print(f"{place}: not run, {reason}")
            failures += [f"{place}: \"{command}\" must be run" for command in commands
                         if command and not MAY_BE_LEFT_OUT.match(command)]
            continue
        num_run += 1
        print(f"{place}: {commands[0]}", flush=True)
        failure = run_block(commands, folder)
        if failure:
            failures.append(f"{place}: {failure}")
    return num_run, failures


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    num_run = 0
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_scratch(folder, Path(sys.argv[1]).resolve())
        for name in DOCUMENTS:
            count, found = check_document(name, folder)
            num_run += count
            failures += found
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{num_run} blocks run, {len(failures)} failures")
    sys.exit(1 if failures or num_run == 0 else 0)


if __name__ == "__main__":
    main()
