"""scripts/check_isa_objects.py sees the weak symbols that the compiler at hand emits."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_isa_objects  # noqa: E402

PLAIN = 'extern "C" float twice(float x) { return x + x; }\n'
LEAKS = "#include <vector>\nint f(int n) { std::vector<int> v; v.push_back(n); return v.at(0); }\n"


class CheckIsaObjects(unittest.TestCase):
    def check(self, sources):
        """sources: {"avx2": text}; returns findings and the number of objects."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "kernels/cpu/scalar").mkdir(parents=True)
            (root / "kernels/cpu/scalar/op.cpp").write_text(LEAKS)
            for isa, text in sources.items():
                source = root / "kernels/cpu" / isa / "op.cpp"
                source.parent.mkdir(parents=True)
                source.write_text(text or "")
                if text is None:
                    continue
                target = root / "build/kernels/CMakeFiles/x.dir/cpu" / isa / "op.cpp.o"
                target.parent.mkdir(parents=True)
                subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O0", "-c",
                                str(source), "-o", str(target)], check=True)
            return check_isa_objects.check(root / "build", root)

    def test_plain_object_passes(self):
        self.assertEqual(self.check({"avx2": PLAIN}), ([], 1))

    def test_template_instance_is_found(self):
        findings, num_objects = self.check({"avx2": PLAIN, "avx512": LEAKS})
        self.assertEqual(num_objects, 2)
        self.assertTrue(findings)
        for finding in findings:
            self.assertIn("kernels/cpu/avx512/op.cpp.o: weak symbol", finding)

    def test_missing_object_is_a_finding(self):
        findings, num_objects = self.check({"avx512": None})
        self.assertEqual(num_objects, 0)
        self.assertIn("nothing was checked", findings[0])


if __name__ == "__main__":
    unittest.main()
