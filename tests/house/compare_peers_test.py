"""scripts/compare_peers.py and make_gguf.py: order of rounds, table, parsing, layouts, refusals."""

import io
import json
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import compare_peers_figures as figures  # noqa: E402
import compare_peers_llama  # noqa: E402
import make_gguf  # noqa: E402


def sample(seconds, wait_share=0.0, disk_faults=0, experts=8.0):
    return {"seconds": seconds, "experts": experts, "error": None, "wait_share": wait_share,
            "disk_faults": disk_faults}


class Order(unittest.TestCase):
    CELLS = figures.cells_of([128], [1, 8])
    ENGINES = ["moe-bench", "llama", "vllm"]

    def test_every_engine_once_a_cell_and_cells_stay_together(self):
        order = figures.round_order(random.Random(1), self.CELLS, self.ENGINES)
        self.assertEqual([cell for cell, _ in order],
                         [cell for cell in self.CELLS for _ in self.ENGINES])
        for at in range(0, len(order), 3):
            self.assertEqual(sorted(name for _, name in order[at:at + 3]), sorted(self.ENGINES))

    def test_each_engine_goes_first_about_equally_often(self):
        rng = random.Random(2)
        first = [figures.round_order(rng, self.CELLS[:1], self.ENGINES)[0][1]
                 for _ in range(900)]
        for name in self.ENGINES:
            self.assertTrue(240 < first.count(name) < 360, first.count(name))

    def test_same_seed_same_order(self):
        orders = [figures.round_order(random.Random(3), self.CELLS, self.ENGINES)
                  for _ in range(2)]
        self.assertEqual(*orders)


class Table(unittest.TestCase):
    def rows(self, taken, keep=False):
        return {row["engine"]: row for row in figures.table_of(
            {("m", "prefill 128", name): each for name, each in taken.items()}, keep)}

    def test_ratio_is_the_peers_median_over_ours(self):
        rows = self.rows({"moe-bench": [sample(s) for s in (1.0, 2.0, 9.0)],
                          "llama": [sample(s) for s in (5.0, 6.0, 7.0)]})
        self.assertEqual(rows["llama"]["ratio"], 3.0)
        self.assertEqual(rows["moe-bench"]["ratio"], 1.0)

    def test_spread_is_half_the_quartile_distance_over_the_median(self):
        row = figures.summarise([sample(s) for s in (10.0, 11.0, 12.0, 13.0, 14.0)])
        self.assertAlmostEqual(row["spread"], (13.0 - 11.0) / 2 / 12.0)

    def test_contended_and_paged_samples_are_dropped_whatever_their_value(self):
        taken = {"moe-bench": [sample(1.0), sample(0.5, wait_share=0.031), sample(1.0)],
                 "llama": [sample(2.0), sample(0.1, disk_faults=1), sample(2.0, wait_share=0.03)]}
        rows = self.rows(taken)
        self.assertEqual((rows["moe-bench"]["samples"], rows["moe-bench"]["dropped"]), (2, 1))
        self.assertEqual((rows["llama"]["samples"], rows["llama"]["dropped"]), (2, 1))
        self.assertEqual(self.rows(taken, keep=True)["llama"]["samples"], 3)

    def test_nothing_left_is_no_ratio(self):
        rows = self.rows({"moe-bench": [sample(1.0, wait_share=1.0)], "llama": [sample(1.0)]})
        self.assertIsNone(rows["llama"]["ratio"])
        out = io.StringIO()
        figures.print_table(rows.values(), out)
        self.assertRegex(out.getvalue(), r"moe-bench +- +-% +0 +1")

    def test_a_layer_that_drowns_in_noise_has_no_median(self):
        rows = self.rows({"moe-bench": [sample(-1.0), sample(-0.1)], "llama": [sample(2.0)]})
        self.assertIsNone(rows["moe-bench"]["median_s"])
        self.assertIsNone(rows["llama"]["ratio"])

    def test_layer_is_the_difference_and_carries_the_worse_wait(self):
        layer, = figures.difference_samples([sample(5.0, 0.01, 1)], [sample(3.0, 0.02, 2)])
        self.assertEqual(layer["seconds"], 2.0)
        self.assertEqual((layer["wait_share"], layer["disk_faults"]), (0.02, 3))

    def test_share_of_waiting(self):
        self.assertAlmostEqual(figures.wait_share((100, 10, 0), (1070, 40, 0)), 0.03)
        self.assertEqual(figures.wait_share((5, 5, 0), (5, 5, 0)), 0.0)


class Checks(unittest.TestCase):
    def test_same_token_in_every_sequence_is_found_by_its_experts(self):
        # 8 sequences of 8 of 64: 42 by uniform routing, 8 when all hold one token.
        self.assertAlmostEqual(figures.expected_experts(64, 8, 8), 42.0, delta=0.1)
        self.assertEqual(figures.expert_faults(
            {"moe-bench": 42.0, "llama": 8.0, "ik": 41.0}, 64, 8, 8), ["llama"])

    def test_more_experts_than_there_can_be(self):
        self.assertEqual(figures.expert_faults({"llama": 17.0}, 64, 8, 2), ["llama"])
        self.assertEqual(figures.expert_faults({"llama": None}, 64, 8, 2), [])

    def test_logit_error_is_relative_to_their_spread(self):
        report = {"tables": {"verify_stages": {
            "columns": [{"name": "stage"}, {"name": "max_error"}],
            "rows": [["embed", 9.0], ["logits", 0.5]]}}}
        self.assertAlmostEqual(figures.logit_error(report, [[1.0, -1.0], [-1.0, 1.0]]), 0.5)

    def test_golden_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "g.safetensors"
            figures.write_golden(path, [3, 4], [[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]])
            raw = path.read_bytes()
        (length,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8:8 + length])
        self.assertEqual(length % 8, 0)
        self.assertEqual(header["logits"]["shape"], [2, 3])
        begin, end = header["logits"]["data_offsets"]
        self.assertEqual(struct.unpack("<6f", raw[8 + length + begin:8 + length + end]),
                         (1.5, 2.0, 3.0, 4.0, 5.0, 6.0))


class Reports(unittest.TestCase):
    REPORT = {"metrics": {"decode_distinct_experts": {"value": 5.5}}, "tables": {
        "samples": {"columns": [{"name": "token"}, {"name": "time_s"}],
                    "rows": [[1, 1.2], [0, 1.0], [2, 1.5], [3, 1.7]]},
        "routing_expert_load": {
            "columns": [{"name": "layer"}, {"name": "expert"}, {"name": "prefill_tokens"}],
            "rows": [[0, 0, 3], [0, 1, 0], [0, 2, 1], [1, 0, 1], [1, 1, 0], [1, 2, 0]]}}}

    def test_decode_is_the_median_gap(self):
        seconds, experts = figures.figures_of(self.REPORT, "decode")
        self.assertAlmostEqual(seconds, 0.2)
        self.assertEqual(experts, 5.5)

    def test_prefill_counts_the_layer_that_ran_for_all_tokens(self):
        self.assertEqual(figures.figures_of(self.REPORT, "prefill"), (1.0, 2))

    def test_sizes_of_every_shape(self):
        for name, experts, intermediate in (("OLMoE-1B-7B", 64, 1024),
                                            ("Mixtral-8x7B-v0.1/2", 8, 7168),
                                            ("Qwen3-30B-A3B", 128, 768)):
            _, sizes = figures.expand(name)
            self.assertEqual((sizes["num_local_experts"], sizes["intermediate_size"],
                              sizes["hidden_size"]), (experts, intermediate, 2048))
        for name in ("No-Such-Model", "OLMoE-1B-7B/0", "OLMoE-1B-7B/x"):
            with self.assertRaises(figures.PeerError):
                figures.expand(name)


class LlamaLayouts(unittest.TestCase):
    def defaults(self, head, between):
        raw = head + struct.pack("<6I", 512, 2048, 512, 1, 4, 4) + between
        raw += bytes(-len(raw) % 8) + bytes(16) + struct.pack("<2I", 1, 1)
        return raw + bytes(compare_peers_llama.STRUCT_BYTES - len(raw))

    def test_fields_are_found_with_and_without_a_seed_in_front(self):
        floats = struct.pack("<3i8f", -1, -1, -1, 0, 0, -1, 1, 32, 1, 0, -1)
        for head in (b"", struct.pack("<I", 0xFFFFFFFF)):
            raw = self.defaults(head, floats)
            at = compare_peers_llama.context_offset(raw)
            self.assertEqual(at, len(head))
            place = compare_peers_llama.callback_offset(raw, at)
            self.assertEqual(raw[place + 16:place + 24], struct.pack("<2I", 1, 1))
            self.assertEqual(place, (len(head) + 24 + len(floats) + 7) // 8 * 8)

    def test_unknown_layout_is_refused(self):
        with self.assertRaises(RuntimeError):
            compare_peers_llama.context_offset(bytes(512))
        self.assertIsNone(compare_peers_llama.callback_offset(bytes(512), 0))

    def test_distinct_experts_of_a_view(self):
        # Two tokens, six experts in order of score, the first two are chosen.
        ids = [0, 1, 2, 3, 4, 5, 1, 3, 0, 2, 4, 5]
        self.assertEqual(compare_peers_llama.num_distinct(ids, 2, 2, 6), 3)


class Gguf(unittest.TestCase):
    def test_rows_of_a_head_are_paired(self):
        # One head of four rows: halves (0 1)(2 3) become pairs (0 2)(1 3).
        self.assertEqual(make_gguf.interleave_halves(b"AABBCCDD", [4, 1], 1), b"AACCBBDD")
        self.assertEqual(make_gguf.interleave_halves(b"ABCD" b"EFGH", [8, 1], 2), b"ACBDEGFH")

    def test_bf16_widened(self):
        raw = struct.pack("<f", -1.5)[2:] + struct.pack("<f", 0.25)[2:]
        self.assertEqual(struct.unpack("<2f", make_gguf.widen(raw)), (-1.5, 0.25))


class Refusals(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, str(ROOT / "scripts" / "compare_peers.py"),
                               "--moe-bench", "moe-bench", *arguments], capture_output=True,
                              text=True)

    def test_nothing_to_compare_with_is_usage(self):
        self.assertEqual(self.run_script().returncode, 2)
        self.assertEqual(self.run_script("--llama", ".", "--rounds", "0").returncode, 2)

    def test_what_is_not_there_is_named_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for option in ("--llama", "--ik", "--vllm"):
                done = self.run_script(option, folder)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertRegex(done.stderr, rf"^compare_peers: {option} [^\n]+\n$")


if __name__ == "__main__":
    unittest.main()
