#!/usr/bin/env python3
"""Checks that the loops around the AMX tile products keep everything in registers.

    scripts/check_tile_loops.py BUILD_DIR

A compiler that runs out of registers, or believes that memory may have changed, puts pointers and
counts on the stack in the middle of a loop; results stay right and the speed is gone. Looks at the
machine code of kernels/cpu/amx/ in an optimised build: the innermost loops with a tile product may
not write to the stack. Ends with 1 when one does, or when no such loop is found; with 77 (skipped)
when the build has no such object or the machine no objdump.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

PRODUCTS = ("tdpbf16ps", "tdpbssd")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*?)\s*(?:#.*)?$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
STACK_TARGET = re.compile(r"(?:^|,)\s*-?(?:0x[0-9a-f]+)?\(%rsp[^()]*\)$")
READS_ONLY = ("cmp", "test", "lea", "prefetch", "call", "jmp", "nop", "bt")


def functions(listing):
    """Yields (name, [(address, mnemonic, operands)]) of a disassembly in AT&T syntax."""
    name, body = None, []
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            if body:
                yield name, body
            name, body = match.group(1), []
        elif match := INSTRUCTION.match(line):
            body.append((int(match.group(1), 16), match.group(2), match.group(3)))
    if body:
        yield name, body


def product_loops(body):
    """Address ranges of the innermost loops that contain a tile product."""
    products = [address for address, mnemonic, _ in body if mnemonic in PRODUCTS]
    loops = []
    for address, mnemonic, operands in body:
        if not mnemonic.startswith("j") or not re.match(r"[0-9a-f]+\b", operands):
            continue
        target = int(operands.split()[0], 16)
        if target <= address and any(target <= at <= address for at in products):
            loops.append((target, address))
    return [loop for loop in set(loops)
            if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1]
                       for other in loops)]


def stack_writes(body, loop):
    """Instructions of the loop whose target, the last operand, is on the stack."""
    return [f"{mnemonic} {operands}" for address, mnemonic, operands in body
            if loop[0] <= address <= loop[1] and not mnemonic.startswith(READS_ONLY)
            and (STACK_TARGET.search(operands) or mnemonic.startswith("push"))]


def check(listing):
    """Returns (findings, number of loops examined)."""
    findings, num_loops = [], 0
    for name, body in functions(listing):
        for loop in product_loops(body):
            num_loops += 1
            for write in stack_writes(body, loop):
                findings.append(f"{name}: a loop with tile products writes to the stack: {write}")
    return findings, num_loops


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    objects = sorted((Path(sys.argv[1]) / "kernels").glob("**/cpu/amx/*.o"))
    if not objects or shutil.which("objdump") is None:
        print("skipped: no object of kernels/cpu/amx, or no objdump")
        sys.exit(77)
    findings, num_loops = [], 0
    for object_file in objects:
        listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--demangle", object_file],
                                 capture_output=True, text=True, check=True).stdout
        found, count = check(listing)
        findings += found
        num_loops += count
    for finding in findings:
        print(finding)
    print(f"{num_loops} loops, {len(findings)} findings")
    sys.exit(1 if findings or num_loops == 0 else 0)


if __name__ == "__main__":
    main()
