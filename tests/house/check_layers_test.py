"""Each rule of scripts/check_layers.py finds its case, and only that, in a tiny tree."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_layers  # noqa: E402

CLEAN = {
    "kernels/CMakeLists.txt": "add_library(moe_kernels STATIC cpu/dot.cpp)\n",
    "kernels/api.hpp": "#pragma once\n\n#include <cstdint>\n",
    "kernels/cpu/dot.cpp": '#include "kernels/api.hpp"\n',
    "lib/base/CMakeLists.txt": "moe_add_module(base SOURCES units.cpp)\n",
    "lib/base/units.hpp": "#pragma once\n",
    "lib/base/units.cpp": '#include "lib/base/units.hpp"\n',
    "lib/model/CMakeLists.txt": "moe_add_module(model SOURCES config.cpp DEPS moe::base)\n",
    "lib/model/config.hpp": '#pragma once\n\n#include "lib/base/units.hpp"\n',
    "lib/model/config.cpp": '#include "lib/model/config.hpp"\n',
    "lib/app/bench/CMakeLists.txt":
        "moe_add_module(app_bench SOURCES main_loop.cpp DEPS moe::model)\n",
    "lib/app/bench/main_loop.hpp": "#pragma once\n",
    "lib/app/bench/main_loop.cpp":
        '#include "lib/model/config.hpp"\nvoid f() { std::cout << 1; }\n',
    "tools/moe-x/CMakeLists.txt": "moe_add_tool(moe-x)\n",
    "tools/moe-x/main.cpp": '#include "lib/app/bench/main_loop.hpp"\n',
    "tests/lib/model/CMakeLists.txt": "moe_add_test(config_test SOURCES config_test.cpp)\n",
    "tests/lib/model/config_test.cpp": '#include "lib/model/config.hpp"\nint x = rand();\n',
}


class CheckLayers(unittest.TestCase):
    def findings(self, changes, keep_first_include=False):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**CLEAN, **changes}.items():
                file = Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            found = check_layers.check_tree(folder)
        # Most trees here replace a source by one line; one test is about the first include.
        return [line for line in found if keep_first_include or "first include" not in line]

    def expect(self, changes, *fragments):
        found = self.findings(changes)
        self.assertEqual(len(found), len(fragments), found)
        for fragment in fragments:
            self.assertTrue(any(fragment in line for line in found), (fragment, found))

    def test_a_clean_tree_has_no_findings(self):
        self.expect({})

    def test_include_and_link_upwards(self):
        self.expect(
            {"lib/base/units.cpp": '#include "lib/model/config.hpp"\n',
             "lib/base/CMakeLists.txt":
                 "moe_add_module(base SOURCES units.cpp DEPS moe::model)\n"},
            "lib/base/CMakeLists.txt: link points up: lib/base (layer 1) -> lib/model (layer 4)",
            "lib/base/units.cpp:1: include points up: lib/base (layer 1) -> lib/model (layer 4)")

    def test_include_of_a_module_on_the_same_line(self):
        self.expect(
            {"lib/routing/CMakeLists.txt":
                 "moe_add_module(routing SOURCES a.cpp DEPS moe::model)\n",
             "lib/routing/a.cpp": '#include "lib/model/config.hpp"\n'},
            "link points up: lib/routing (layer 4) -> lib/model (layer 4)",
            "lib/routing/a.cpp:1: include points up")

    def test_include_without_link_and_link_without_include(self):
        self.expect({"lib/model/CMakeLists.txt": "moe_add_module(model SOURCES config.cpp)\n"},
                    "lib/model/config.hpp:3: lib/model includes lib/base but")
        self.expect({"lib/model/config.hpp": "#pragma once\n"},
                    "links lib/base but no file of lib/model includes it")

    def test_module_that_the_table_does_not_know(self):
        self.expect({"lib/extra/CMakeLists.txt": "moe_add_module(extra SOURCES a.cpp)\n",
                     "lib/extra/a.cpp": '#include "lib/base/units.hpp"\n'},
                    "module lib/extra is not in the table",
                    "lib/extra includes lib/base but")

    def test_tools_include_the_application_only(self):
        self.expect({"tools/moe-x/main.cpp": '#include "lib/model/config.hpp"\n'},
                    "a tool includes its folder of lib/app, nothing else")

    def test_tools_do_not_share_their_folders(self):
        self.expect({"lib/app/plan/CMakeLists.txt":
                     "moe_add_module(app_plan SOURCES a.cpp DEPS moe::app_bench)\n",
                     "lib/app/plan/a.cpp": '#include "lib/app/bench/main_loop.hpp"\n'},
                    "include points up: lib/app/plan (layer 9) -> lib/app/bench (layer 9)",
                    "link points up: lib/app/plan")

    def test_nothing_includes_tests_and_every_path_starts_at_the_root(self):
        self.expect({"lib/base/units.cpp": '#include "tests/x.hpp"\n', "tests/x.hpp":
                     "#pragma once\n"}, "nothing but tests may include tests")
        self.expect({"lib/base/units.cpp": '#include "units.hpp"\n'},
                    "does not start at the project root")
        self.expect({"lib/base/units.cpp": '#include "lib/base/gone.hpp"\n'}, "does not exist")

    def test_generated_header_is_known_to_the_build(self):
        self.expect({"lib/base/units.cpp": '#include "version.hpp"\n', "lib/base/CMakeLists.txt":
                     "configure_file(version.hpp.in version.hpp)\n"
                     "moe_add_module(base SOURCES units.cpp)\n"})

    def test_banned_calls_below_the_application(self):
        for call in ('printf("x");', "std::printf(x);", "std::cerr << 1;", "std::exit(1);",
                     "::exit(1);", "abort();", 'getenv("HOME");', "int x = rand();",
                     "std::srand(1);", "std::random_device seed;", 'std::fputs("x", stderr);',
                     'fmt::print("x");', 'system("ls");'):
            with self.subTest(call):
                found = self.findings({"lib/base/units.cpp": f"void f() {{ {call} }}\n"})
                self.assertTrue(found, call)
                self.assertIn("lib/base/units.cpp:1", found[0])

    def test_what_looks_like_a_banned_call_and_is_none(self):
        self.expect({"lib/base/units.cpp": "// printf(x) is banned\n"
                     'const char* kText = "exit(1)"; /* abort() */\n'
                     "void f() { std::snprintf(b, 1, x); operand(3); worker.exit(1); }\n"
                     "const int kBig = 1'000'000; const char kMark = '\"'; void g();\n"
                     'const char* kRaw = R"(rand() "x" )";\n'})

    def test_banned_everywhere(self):
        self.expect({"lib/app/bench/main_loop.cpp":
                     '#include "lib/model/config.hpp"\nusing namespace std;\n'}, "using namespace")
        self.expect({"lib/base/units.cpp": "int* p = new int;\n"}, "a bare new")
        self.expect({"lib/base/units.cpp": "void* p = std::malloc(3);\n"}, "raw memory")

    def test_pure_modules_have_no_clock(self):
        self.expect({"lib/planner/CMakeLists.txt": "moe_add_module(planner SOURCES a.cpp)\n",
                     "lib/planner/a.cpp": "#include <chrono>\n"}, "lib/planner is pure")

    def test_own_header_comes_first(self):
        found = self.findings({"lib/model/config.cpp": '#include "lib/base/units.hpp"\n'
                               '#include "lib/model/config.hpp"\n'}, keep_first_include=True)
        self.assertTrue(any('lib/model/config.cpp: the first include is "lib/model/config.hpp"'
                            in line for line in found), found)
        # Only the application's source of the clean tree does not begin with its header.
        self.assertEqual(len(found), 2, found)

    def test_headers(self):
        self.expect({"lib/base/units.hpp": "#pragma once\n\n#include <nlohmann/json.hpp>\n"},
                    "header includes the heavy")
        self.expect({"lib/base/units.hpp": "#include <vector>\n"}, "#pragma once")

    def test_lines_and_files(self):
        self.expect({"lib/base/units.cpp": "int x;" + " " * 100 + "\n"}, "106 columns", "blanks")
        self.expect({"lib/base/units.cpp": "int x;\n" * 801}, "801 lines")
        self.expect({"lib/base/units.cpp": "int x;"}, "no line break")
        self.expect({"lib/base/units.cpp": "\tint x;\n"}, "a tab")
        self.expect({"lib/base/units.cpp": "// caf\u00e9\n"}, "outside ASCII")
        self.expect({"lib/base/BadName.hpp": "#pragma once\n"}, "snake_case")

    def test_leftovers(self):
        self.expect({"lib/base/units.cpp": "// TO" "DO: later\n"}, "leftover")
        self.expect({"README.md": "See /ho" "me/me/x.\n"}, "the path of one machine")

    def test_data_is_left_alone(self):
        self.expect({"tests/fuzz/corpus/x/y.json": "/ho" "me/me TO" "DO",
                     "scenarios/models/a.json": "caf\u00e9"})

    def test_dead_source(self):
        self.expect({"lib/base/forgotten.cpp": "int x;\n"},
                    "lib/base/forgotten.cpp: no CMake file builds this source")
        self.expect({"kernels/CMakeLists.txt":
                     "foreach(op dot)\n  add_library(a cpu/${op}.cpp)\nendforeach()\n"})


if __name__ == "__main__":
    unittest.main()
