#!/usr/bin/env python3
"""Checks that no kernel object of one instruction set can leak into code for all machines.

    scripts/check_isa_objects.py BUILD_DIR

A file compiled for AVX-512 that instantiates an inline or template function emits a weak copy of
it, and the linker may keep that copy for the whole program, which then dies on an older CPU. So the
objects of kernels/cpu/<isa>/ may define no weak (W, V) and no unique (u) symbol. Ends with 1 when
one does, or when the sources have such a folder and the build has no object of it.
"""

import subprocess
import sys
from pathlib import Path

BASELINE = {"scalar"}  # compiled for every x86-64 machine


def weak_symbols(object_file):
    """Lines of nm, "address type name", of the symbols that another file's copy could replace."""
    listing = subprocess.run(["nm", "--defined-only", "--demangle", object_file],
                             capture_output=True, text=True, check=True).stdout
    weak = []
    for line in listing.splitlines():
        fields = line.split(maxsplit=2)
        if len(fields) == 3 and fields[1] in ("W", "w", "V", "v", "u"):
            weak.append(f"{fields[1]} {fields[2]}")
    return weak


def check(build_dir, source_dir):
    """Returns (findings, number of objects examined)."""
    findings = []
    num_objects = 0
    for folder in sorted(p for p in (source_dir / "kernels" / "cpu").iterdir() if p.is_dir()):
        if folder.name in BASELINE or not any(folder.glob("*.cpp")):
            continue
        objects = sorted((build_dir / "kernels").glob(f"**/cpu/{folder.name}/*.o"))
        if not objects:
            findings.append(f"no object of kernels/cpu/{folder.name} in {build_dir}: "
                            "nothing was checked")
        for object_file in objects:
            num_objects += 1
            for symbol in weak_symbols(object_file):
                findings.append(f"kernels/cpu/{folder.name}/{object_file.name}: weak symbol "
                                f"{symbol}")
    return findings, num_objects


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source_dir = Path(__file__).resolve().parent.parent
    findings, num_objects = check(Path(sys.argv[1]), source_dir)
    for finding in findings:
        print(finding)
    print(f"{num_objects} objects, {len(findings)} findings")
    sys.exit(1 if findings or num_objects == 0 else 0)


if __name__ == "__main__":
    main()
