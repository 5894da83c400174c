#!/usr/bin/env python3
"""Checks the structure of the sources: what no compiler and no formatter looks at.

    scripts/check_layers.py [ROOT]

Includes and CMake links may only point down the table below; nothing below lib/app prints, exits,
reads the environment or the clock of chance; lines, files, names and leftovers are in order; every
source is built. Prints one line per finding ("file:line: what is wrong") and ends with 1 when there
was one. ARCHITECTURE.md explains the layers.
"""

import os
import re
import sys
from pathlib import Path

# An include or a link may go from a module to one of a smaller number, never to an equal one.
LAYERS = {
    "tools": 10,
    "lib/app/bench": 9, "lib/app/plan": 9, "lib/app/skew": 9, "lib/app/a2a": 9,
    "lib/app": 8,
    "lib/engine": 7, "lib/client": 7,
    "lib/comm": 6,
    "lib/planner": 5, "lib/balance": 5, "lib/tiering": 5,
    "lib/model": 4, "lib/routing": 4, "lib/topology": 4, "lib/workload": 4,
    "lib/scripted_server": 4, "lib/client_reports": 4,
    "lib/report": 3,
    "lib/stats": 2, "lib/json": 2, "lib/sysinfo": 2,
    "lib/base": 1,
    "kernels": 0,
}
# Calculators: no clock, no I/O, no threads.
PURE_MODULES = {"lib/planner", "lib/balance", "lib/tiering"}
IMPURE_HEADERS = {"chrono", "thread", "mutex", "future", "fstream", "iostream", "filesystem",
                  "cstdio", "unistd.h"}

MAX_COLUMNS = 100
MAX_LINES = 800

# Parsing one of these costs every includer 0.5 to 1.8 s; the exceptions say why they are worth it.
HEAVY_HEADERS = {"nlohmann/json.hpp", "CLI/CLI.hpp", "fmt/format.h", "fmt/core.h", "iostream",
                 "regex", "gtest/gtest.h"}
HEAVY_ALLOWED = {
    ("lib/report/report.hpp", "nlohmann/json.hpp"),  # a report holds JSON objects by value
}

BANNED_CALLS = [
    (r"\b(?:std::)?v?f?printf\s*\(", "prints"),
    (r"\b(?:std::)?(?:puts|putchar|perror)\s*\(", "prints"),
    (r"\bstd::(?:cout|cerr|clog|cin)\b", "uses a standard stream"),
    (r"\b(?:stdout|stderr)\b", "uses a standard stream"),
    (r"\bfmt::print\s*\(", "prints"),
    (r"(?<![\w.>])(?:std::|::)?(?:exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(",
     "ends the process"),
    (r"\b(?:secure_)?(?:getenv|setenv|putenv|unsetenv)\s*\(", "reads the environment"),
    (r"\benviron\b", "reads the environment"),
    (r"(?<![\w.>])(?:std::|::)?s?rand\s*\(", "uses unseeded chance (lib/base/rng.hpp is there)"),
    (r"\bstd::random_device\b", "uses unseeded chance (lib/base/rng.hpp is there)"),
    (r"(?<![\w.>:])(?:std::|::)?system\s*\(", "runs a command"),
    (r"(?<![\w.>])(?:::)?popen\s*\(", "runs a command"),
]
BANNED_ALLOWED = {
    # The last words of a process that found a bug in itself.
    "lib/base/check.cpp": {"prints", "uses a standard stream", "ends the process"},
}
BANNED_ANYWHERE = [
    (r"\busing\s+namespace\b", "using namespace"),
    (r"(?<![\w:.>])(?:std::)?(?:malloc|calloc|realloc)\s*\(",
     "allocates raw memory (lib/base/aligned_buffer.hpp is there)"),
    (r"(?<![\w:])new\s+[A-Za-z_:]", "a bare new"),
    (r"\bhigh_resolution_clock\b", "high_resolution_clock is not monotonic (lib/base/clock.hpp)"),
]

CPP = {".cpp", ".hpp", ".cu", ".cuh"}
TEXT = CPP | {".py", ".sh", ".cmake"}
DOCUMENTS = {".md", ".json", ".txt"}
# Inputs and outputs kept as they are: other people's text, captured bytes, corpora.
DATA = re.compile(r"^(scenarios|reports/examples)/|/(data|corpus|regressions|golden)/")
# Split so that this file does not find itself.
MARKERS = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|not[ _]yet[ _]implemented|"
                     r"\bnot implemen" r"ted\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|tmp|home|root|Users)/")


class Finder:
    def __init__(self, root):
        self.root = root
        self.findings = []

    def add(self, path, line, message):
        place = f"{path}:{line}" if line else str(path)
        self.findings.append(f"{place}: {message}")


def strip_comments_and_strings(text):
    """The code alone; line breaks stay, so that line numbers do."""
    comment = r"//[^\n]*|/\*.*?\*/"
    raw_string = r'R"([^\s()\\]{0,16})\(.*?\)\1"'
    # An apostrophe after a digit separates digits (1'000) and opens no character literal.
    literal = r'"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])' + r"'(?:\\.|[^'\\\n])+'"

    def blank(match):
        code = "" if match.group(0).startswith("/") else '""'
        return code + "\n" * match.group(0).count("\n")

    return re.sub("|".join((comment, raw_string, literal)), blank, text, flags=re.DOTALL)


def module_of(path):
    parts = path.split("/")
    if parts[0] in ("kernels", "tools", "tests"):
        return parts[0]
    if parts[0] == "lib" and len(parts) > 2:
        depth = 3 if parts[1] == "app" and len(parts) > 3 else 2
        return "/".join(parts[:depth])
    return None


def walk(root):
    """Paths of our own files, relative, in order."""
    for folder, names, files in os.walk(root):
        relative = os.path.relpath(folder, root)
        names[:] = sorted(n for n in names if n not in (".git", "__pycache__") and not
                          (relative == "." and re.match(r"build", n)) and
                          os.path.normpath(os.path.join(relative, n)) != "reports/out")
        for name in sorted(files):
            yield os.path.normpath(os.path.join(relative, name))


def is_generated(root, path, target):
    """A header that the build makes: the CMake file beside the includer names it."""
    cmake_file = root / os.path.dirname(path) / "CMakeLists.txt"
    return "/" not in target and cmake_file.exists() and target in cmake_file.read_text()


def check_includes(finder, path, text, edges):
    module = module_of(path)
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        quote, target = match.groups()
        if quote == "<":
            if path.endswith((".hpp", ".cuh")) and module != "tests" and target in HEAVY_HEADERS \
                    and (path, target) not in HEAVY_ALLOWED:
                finder.add(path, number, f"header includes the heavy <{target}>")
            if module in PURE_MODULES and target in IMPURE_HEADERS:
                finder.add(path, number, f"{module} is pure, it may not include <{target}>")
            continue
        to_module = module_of(target)
        if to_module is None:
            if is_generated(finder.root, path, target):
                continue
            finder.add(path, number, f'include "{target}" does not start at the project root')
        elif not (finder.root / target).exists():
            finder.add(path, number, f'include "{target}" does not exist')
        elif module == "tests" or module is None:
            continue
        elif to_module == "tests":
            finder.add(path, number, "nothing but tests may include tests")
        elif to_module != module:
            edges.setdefault((module, to_module), f"{path}:{number}")
            if module == "tools" and not to_module.startswith("lib/app/"):
                finder.add(path, number, "a tool includes its folder of lib/app, nothing else")


def check_edge_direction(finder, place, kind, source, target):
    for module in (source, target):
        if module not in LAYERS:
            finder.add(place, 0, f"module {module} is not in the table of layers")
            return
    if LAYERS[source] <= LAYERS[target]:
        finder.add(place, 0, f"{kind} points up: {source} (layer {LAYERS[source]}) -> "
                             f"{target} (layer {LAYERS[target]})")


def check_calls(finder, path, code):
    module = module_of(path)
    if module is None or module == "tests":
        return
    rules = list(BANNED_ANYWHERE)
    if module == "kernels" or (module.startswith("lib/") and
                               not module.startswith("lib/app")):
        rules += BANNED_CALLS
    allowed = BANNED_ALLOWED.get(path, set())
    for number, line in enumerate(code.splitlines(), 1):
        for pattern, what in rules:
            if what not in allowed and re.search(pattern, line):
                finder.add(path, number, f"{what}: not in {module}")


def check_text(finder, path, raw):
    suffix = Path(path).suffix
    is_source = suffix in TEXT or Path(path).name == "CMakeLists.txt"
    if is_source and not raw.isascii():
        number = raw[:next(i for i, b in enumerate(raw) if b > 127)].count(b"\n") + 1
        finder.add(path, number, "a character outside ASCII")
    text = raw.decode("utf-8", errors="replace")
    lines = text.split("\n")
    if is_source and len(lines) - 1 > MAX_LINES:
        finder.add(path, 0, f"{len(lines) - 1} lines, more than {MAX_LINES}: split it")
    if text and not text.endswith("\n"):
        finder.add(path, len(lines), "no line break at the end")
    for number, line in enumerate(lines, 1):
        if is_source and len(line) > MAX_COLUMNS:
            finder.add(path, number, f"{len(line)} columns, more than {MAX_COLUMNS}")
        if is_source and line != line.rstrip():
            finder.add(path, number, "blanks at the end of the line")
        if is_source and "\t" in line:
            finder.add(path, number, "a tab")
        marker = MARKERS.search(line)
        if marker:
            finder.add(path, number, f'leftover "{marker.group(0)}"')
        if MACHINE_PATHS.search(line) and not line.startswith("#!"):
            finder.add(path, number, "the path of one machine")


def check_names(finder, path):
    name = Path(path).name
    if Path(path).suffix in CPP and not re.fullmatch(r"[a-z0-9_]+\.\w+", name):
        finder.add(path, 0, "source file names are snake_case")


def check_own_header_first(finder, path, text):
    """A source that begins with its own header proves that the header needs nothing before it."""
    header = re.sub(r"\.(cpp|cu)$", ".hpp", path)
    if path == header or not (finder.root / header).exists():
        return
    first = re.search(r'^\s*#\s*include\s*([<"][^>"]+[>"])', text, re.MULTILINE)
    if first is None or first.group(1) != f'"{header}"':
        finder.add(path, 0, f'the first include is "{header}", so that the header stands alone')


def check_header(finder, path, text):
    first = next((line for line in text.splitlines() if line and not line.startswith("//")), "")
    if path.endswith((".hpp", ".cuh")) and first != "#pragma once":
        finder.add(path, 1, "a header starts with #pragma once")


def cmake_files(root):
    return [p for p in walk(root) if p.endswith(".cmake") or p.endswith("CMakeLists.txt")]


def check_cmake_links(finder, edges):
    """Links point down, and say the same as the includes."""
    links = {}
    text_of = {}
    for path in cmake_files(finder.root):
        module = module_of(path)
        if module is None or module in ("tests", "tools"):
            continue
        text = re.sub(r"#[^\n]*", "", (finder.root / path).read_text())
        text_of.setdefault(module, path)
        for target in re.findall(r"\bmoe(?:::|_)(\w+)", text):
            to_module = "kernels" if target.startswith("kernels") else f"lib/{target}"
            to_module = to_module.replace("lib/app_", "lib/app/")
            if to_module != module and to_module in LAYERS:
                links.setdefault((module, to_module), path)
    for (source, target), path in links.items():
        check_edge_direction(finder, path, "link", source, target)
    for (source, target), place in edges.items():
        check_edge_direction(finder, place, "include", source, target)
        if source != "tools" and source in text_of and (source, target) not in links:
            finder.add(place, 0, f"{source} includes {target} but {text_of[source]} does not link "
                                 "it")
    for (source, target), path in links.items():
        if (source, target) not in edges:
            finder.add(path, 0, f"links {target} but no file of {source} includes it")


def check_dead_sources(finder):
    """Every translation unit is named in a CMake file; a name with a variable matches any text."""
    patterns = []
    roots_with_main = set()
    for path in cmake_files(finder.root):
        folder = os.path.dirname(path)
        text = re.sub(r"#[^\n]*", "", (finder.root / path).read_text())
        if "moe_add_tool(" in text:
            roots_with_main.add(os.path.join(folder, "main.cpp"))
        for token in re.findall(r"[^\s()\"]+\.(?:cpp|cu)\b", text):
            token = token.replace("${PROJECT_SOURCE_DIR}/", "/")
            token = re.sub(r"^\$\{CMAKE_CURRENT_(SOURCE|LIST)_DIR\}/", "", token)
            full = token[1:] if token.startswith("/") else os.path.join(folder, token)
            full = os.path.normpath(full)
            pieces = re.split(r"\$\{\w+\}", full)
            patterns.append(re.compile(".*".join(re.escape(piece) for piece in pieces)))
    for path in walk(finder.root):
        if Path(path).suffix not in (".cpp", ".cu") or path in roots_with_main:
            continue
        if module_of(path) is None:
            continue
        if not any(pattern.fullmatch(path) for pattern in patterns):
            finder.add(path, 0, "no CMake file builds this source")


def check_tree(root):
    finder = Finder(Path(root))
    edges = {}
    for path in walk(root):
        suffix = Path(path).suffix
        if DATA.search(path) or suffix not in TEXT | DOCUMENTS:
            continue
        raw = (finder.root / path).read_bytes()
        check_text(finder, path, raw)
        if suffix in CPP:
            text = raw.decode("utf-8", errors="replace")
            check_names(finder, path)
            check_header(finder, path, text)
            check_own_header_first(finder, path, text)
            check_includes(finder, path, text, edges)
            check_calls(finder, path, strip_comments_and_strings(text))
    check_cmake_links(finder, edges)
    check_dead_sources(finder)
    return finder.findings


def main():
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    root = sys.argv[1] if len(sys.argv) == 2 else Path(__file__).resolve().parent.parent
    findings = check_tree(str(root))
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
