"""scripts/check_tile_loops.py finds a spill in a loop with tile products, and only there."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_tile_loops  # noqa: E402


def listing(inner, outer="nop"):
    """A loop with a product inside another loop; both get an instruction of their own."""
    return f"""
0000000000000000 <kernel>:
   0:\tmov    %rbp,0x8(%rsp)
   4:\t{outer}
   8:\ttileloadd (%rax,%rdx,1),%tmm4
   c:\t{inner}
  10:\tprefetcht0 0x40(%rsp)
  14:\ttdpbf16ps %tmm6,%tmm4,%tmm0
  18:\tcmp    %rcx,0x10(%rsp)
  1c:\tjne    8 <kernel+0x8>
  20:\tjne    4 <kernel+0x4>
  24:\tret
"""


class CheckTileLoops(unittest.TestCase):
    def test_a_loop_in_registers_passes(self):
        self.assertEqual(check_tile_loops.check(listing("add    $0x400,%rax")), ([], 1))

    def test_reading_the_stack_is_no_spill(self):
        self.assertEqual(check_tile_loops.check(listing("mov    0x8(%rsp),%rax")), ([], 1))

    def test_a_write_to_the_stack_is_found(self):
        for write in ("mov    %rax,0x8(%rsp)", "mov    %rax,(%rsp)", "addq   $0x1,0x20(%rsp)",
                      "vmovups %zmm1,0x40(%rsp)", "push   %rax"):
            findings, num_loops = check_tile_loops.check(listing(write))
            self.assertEqual(num_loops, 1)
            self.assertEqual(len(findings), 1, write)
            self.assertIn("kernel: a loop with tile products", findings[0])

    def test_outside_the_innermost_loop_it_is_not(self):
        found = check_tile_loops.check(listing("nop", outer="mov    %rax,0x8(%rsp)"))
        self.assertEqual(found, ([], 1))

    def test_code_without_products_has_no_loops(self):
        text = listing("nop").replace("tdpbf16ps", "vdpbf16ps")
        self.assertEqual(check_tile_loops.check(text), ([], 0))


if __name__ == "__main__":
    unittest.main()
