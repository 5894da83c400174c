#!/usr/bin/env python3
"""Opens the HTML report of a real run in headless Chromium.

    tests/house/html_report_test.py BUILD_DIR

The page must load nothing from elsewhere, its script must end without an error, and every chart
must have been drawn. Exit status 77 (skipped) when there is no Chromium.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = ["run", str(ROOT / "scenarios/checkpoints/tinymoe-qwen3"), "--batch", "1,2",
       "--prompt-tokens", "16", "--output-tokens", "8", "--no-limits", "--quiet",
       "--format", "none"]


def make_report(build_dir, path):
    subprocess.run([str(Path(build_dir) / "bin/moe-bench"), *RUN, "--output", str(path)],
                   check=True, timeout=240)


def open_page(browser, path, profile):
    """(DOM after the script ran, console messages)."""
    result = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={profile}", "--enable-logging=stderr", "--virtual-time-budget=5000",
         "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=240, check=True)
    return result.stdout, re.findall(r".*CONSOLE.*", result.stderr)


def problems(source, dom, console):
    found = [f"the console says: {line}" for line in console]
    outside = re.findall(r'(?:src|href)\s*=\s*["\']?(https?:|//)', source)
    if outside:
        found.append("the page loads something from elsewhere")
    canvases = re.findall(r"<canvas[^>]*>", dom)
    if not canvases:
        found.append("there is no chart")
    # Chart.js sets these on the canvas that it draws on.
    undrawn = [tag for tag in canvases
               if not re.search(r'\bwidth="[1-9]', tag) or "box-sizing" not in tag]
    found += [f"not drawn: {tag}" for tag in undrawn]
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("skipped: no chromium (scripts/packages.sh extra)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        make_report(sys.argv[1], path)
        dom, console = open_page(browser, path, Path(folder) / "profile")
        found = problems(path.read_text(encoding="utf-8"), dom, console)
    for problem in found:
        print(problem)
    print(f"{len(re.findall('<canvas', dom))} charts, {len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
