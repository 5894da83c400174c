"""scripts/compare_peers.py and make_gguf.py: order of rounds, table, parsing, layouts, who is left
out, refusals."""

import argparse
import contextlib
import io
import json
import math
import random
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import compare_peers  # noqa: E402
import compare_peers_engines  # noqa: E402
import compare_peers_figures as figures  # noqa: E402
import compare_peers_llama  # noqa: E402
import compare_peers_models  # noqa: E402
import make_gguf  # noqa: E402


def sample(seconds, wait_share=0.0, disk_faults=0, experts=8.0):
    return {"seconds": seconds, "experts": experts, "error": None, "wait_share": wait_share,
            "disk_faults": disk_faults}


def table_with(columns, *rows):
    return {"columns": [{"name": name} for name in columns], "rows": [list(row) for row in rows]}


def safetensors(**tensors):
    """name -> (dtype, shape, bytes) as the bytes of a file."""
    header, offset = {}, 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(one[2] for one in tensors.values())


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
            {("m", "prefill 128", name): each for name, each in taken.items()},
            {("m", "prefill 128", "llama"): 64.0}, {("m", "llama"): 0.01}, keep)}

    def test_ratio_is_the_peers_median_over_ours(self):
        rows = self.rows({"moe-bench": [sample(s) for s in (1.0, 2.0, 9.0)],
                          "llama": [sample(s) for s in (5.0, 6.0, 7.0)]})
        self.assertEqual(rows["llama"]["ratio"], 3.0)
        self.assertEqual(rows["moe-bench"]["ratio"], 1.0)

    def test_experts_and_error_stand_beside_the_times(self):
        rows = self.rows({"moe-bench": [sample(1.0)], "llama": [sample(5.0)]})
        self.assertEqual((rows["llama"]["experts"], rows["llama"]["logit_error"]), (64.0, 0.01))
        self.assertEqual((rows["moe-bench"]["experts"], rows["moe-bench"]["logit_error"]),
                         (None, None))

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

    def test_rows_of_a_cell_stand_together_and_ours_first(self):
        taken = {("m", cell, name): [sample(1.0)]
                 for name in ("llama", "moe-bench int8", "moe-bench")
                 for cell in ("prefill 512", "decode 1")}
        rows = figures.table_of(taken, {}, {}, False)
        self.assertEqual([(row["cell"], row["engine"]) for row in rows], [
            (cell, name) for cell in ("prefill 512", "decode 1")
            for name in ("moe-bench", "moe-bench int8", "llama")])

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

    def test_logit_error_is_the_median_over_positions_of_what_is_off_in_spreads(self):
        truth = [[1.0, -1.0, 1.0, -1.0]] * 3
        off = [[1.1, -0.9, 1.1, -0.9], [1.0, -1.0, 1.0, -1.0], [9.0, 9.0, 9.0, 9.0]]
        self.assertAlmostEqual(figures.logit_error(off, truth), 0.1)
        self.assertEqual(figures.logit_error([[math.nan] * 4] * 3, truth), math.inf)
        with self.assertRaises(ValueError):
            figures.logit_error(off[:2], truth)

    def test_logits_are_read_and_their_shape_is_checked(self):
        raw = safetensors(input_ids=("I32", [2], struct.pack("<2i", 3, 4)),
                          logits=("F32", [2, 3], struct.pack("<6f", 1.5, 2.0, 3.0, 4.0, 5.0, 6.0)))
        self.assertEqual([list(row) for row in figures.read_logits(raw, 2, 3)],
                         [[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]])
        with self.assertRaises(figures.PeerError):
            figures.read_logits(raw, 3, 2)


class Reports(unittest.TestCase):
    LOAD = table_with(("layer", "expert", "prefill_tokens"), (0, 0, 3), (0, 1, 0), (0, 2, 1),
                      (1, 0, 1), (1, 1, 0), (1, 2, 0))

    def report(self, *samples, **experts):
        return {"metrics": {name: {"value": value} for name, value in experts.items()},
                "tables": {"routing_expert_load": self.LOAD, "samples": table_with(
                    ("batch", "prompt_tokens", "token", "time_s"), *samples)}}

    def test_decode_is_the_median_gap(self):
        report = self.report((4, 16, 1, 1.2), (4, 16, 0, 1.0), (4, 16, 2, 1.5), (4, 16, 3, 1.7),
                             decode_distinct_experts=5.5)
        ((seconds, experts),) = figures.figures_of(report, "decode", [4])
        self.assertAlmostEqual(seconds, 0.2)
        self.assertEqual(experts, 5.5)

    def test_each_batch_has_its_own_times_and_experts(self):
        report = self.report((1, 16, 0, 1.0), (1, 16, 1, 1.1), (16, 16, 0, 2.0), (16, 16, 1, 2.5),
                             **{"decode_distinct_experts": 8.0,
                                "decode_distinct_experts.batch_1.prompt_tokens_16": 8.0,
                                "decode_distinct_experts.batch_16.prompt_tokens_16": 56.0})
        (one, experts), (many, more) = figures.figures_of(report, "decode", [1, 16])
        self.assertAlmostEqual(one, 0.1)
        self.assertAlmostEqual(many, 0.5)
        self.assertEqual((experts, more), (8.0, 56.0))

    def test_prefill_counts_the_layer_that_ran_for_all_tokens(self):
        report = self.report((1, 128, 0, 1.0))
        self.assertEqual(figures.figures_of(report, "prefill", [128]), [(1.0, 2)])

    def test_prefills_of_one_report_are_not_counted_together(self):
        report = self.report((1, 128, 0, 1.0), (1, 512, 0, 4.0))
        self.assertEqual(figures.figures_of(report, "prefill", [128, 512]),
                         [(1.0, None), (4.0, None)])

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

    def test_flag_of_repacking(self):
        head = struct.pack("<4i", -1, 1, 512, 256)
        raw = head + bytes(56) + bytes((0, 1, 0, 0, 0, 0, 0, 0)) + bytes(400)
        self.assertEqual(compare_peers_llama.repack_offset(raw), len(head) + 56 + 4)
        with self.assertRaises(RuntimeError):
            compare_peers_llama.repack_offset(bytes(512))

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


class Models(unittest.TestCase):
    SIZES = {"hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 2,
             "num_key_value_heads": 1, "head_dim": 32, "num_local_experts": 4,
             "num_experts_per_tok": 2}

    def test_the_keys_of_each_family(self):
        mixtral = compare_peers_models.model_config("mixtral", self.SIZES, 2, 100, 64)
        self.assertEqual((mixtral["num_local_experts"], mixtral["num_hidden_layers"]), (4, 2))
        qwen = compare_peers_models.model_config("qwen3_moe", self.SIZES, 1, 100, 64)
        self.assertEqual((qwen["num_experts"], qwen["moe_intermediate_size"]), (4, 32))
        self.assertNotIn("num_local_experts", qwen)
        for config in (mixtral, qwen):
            self.assertIn(config["model_type"], make_gguf.FAMILIES)

    def test_moe_bench_runs_the_file_and_rounds_by_itself(self):
        class Files:
            def gguf(self, form):
                return f"{form}.gguf"
        args = argparse.Namespace(activations=["f32", "int8"], run_options=["--isa", "avx2"],
                                  vllm=None)
        own = lambda form: [  # noqa: E731
            (engine.name, engine.model, engine.options)
            for engine in compare_peers_engines.own_engines(args, Files(), form, Path("log"))]
        isa = ["--isa", "avx2"]
        # Integer activations go with rounded weights only.
        self.assertEqual(own("bf16"), [("moe-bench", "bf16.gguf", ["--activations", "f32", *isa])])
        args.activations = ["int8"]
        self.assertEqual(own("bf16"), [("moe-bench", "bf16.gguf", ["--activations", "auto", *isa])])
        self.assertEqual([name for name, _, _ in own("q8_0")], ["moe-bench", "moe-bench int8"])
        args.vllm = Path("env")  # has a kernel with a scale per output
        self.assertEqual([name for name, _, _ in own("q8_0")],
                         ["moe-bench", "moe-bench int8", "moe-bench int8-channel"])
        args.activations = ["f32", "int8"]
        self.assertEqual(own("q4_0"), [
            ("moe-bench", "q4_0.gguf", ["--activations", "f32", *isa]),
            ("moe-bench int4", "bf16.gguf", ["--activations", "f32", "--quantize", "int4", *isa]),
            ("moe-bench a:int8", "q4_0.gguf", ["--activations", "int8", *isa]),
            ("moe-bench int4 a:int8", "bf16.gguf",
             ["--activations", "int8", "--quantize", "int4", *isa])])
        # moe-bench rounds to none of the K formats.
        self.assertEqual([name for name, _, _ in own("q4_k_m")], ["moe-bench", "moe-bench a:int8"])


class PartialReports(unittest.TestCase):
    def test_a_partial_report_ends_the_engine_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "moe-bench"
            program.write_text("#!/bin/sh\necho '{\"validity\": {\"partial\": true}}'\n")
            program.chmod(0o755)
            args = argparse.Namespace(moe_bench=program, threads=1, run_options=[])
            engine = compare_peers_engines.MoeBench(args, "moe-bench", "x.gguf", [],
                                                    Path(folder) / "log")
            draw = compare_peers_engines.Draw(random.Random(0), 8, 2)
            with self.assertRaisesRegex(figures.PeerError, "moe-bench: was interrupted"):
                engine.measure("decode", [1], draw)


class FakeEngine:
    """Answers as told; `dies_in` is the round (0 warms up) in which it ends."""

    def __init__(self, name, rows=((1.0, -1.0),), experts=None, dies_in=None):
        self.name, self.rows, self.experts, self.dies_in = name, rows, experts or {}, dies_in
        self.options, self.calls, self.stopped = [], 0, False

    def logits(self, ids, vocab_size):
        return self.rows

    def logits_with(self, ids, vocab_size, options):
        return ((1.0, -1.0),)

    def measure(self, kind, sizes, draw, counts=False):
        if self.calls == self.dies_in:
            raise figures.PeerError(f"{self.name}: ended")
        self.calls += 1
        return [sample(0.5, experts=self.experts.get(size, 8.0)) for size in sizes]

    def stop(self):
        self.stopped = True


class Interrupted(unittest.TestCase):
    def test_nothing_runs_on(self):
        class Process:
            pid, killed = 1, False

            def kill(self):
                self.killed = True

            def wait(self):
                pass

            class stdout:
                @staticmethod
                def read():
                    raise KeyboardInterrupt
        process, before = Process(), threading.active_count()
        with self.assertRaises(KeyboardInterrupt):
            compare_peers_engines.watch(process)
        self.assertTrue(process.killed)
        self.assertEqual(threading.active_count(), before)


class WhoIsTimed(unittest.TestCase):
    SIZES = {"num_local_experts": 64, "num_experts_per_tok": 8}

    def setUp(self):
        self.taken = compare_peers.Comparison(argparse.Namespace(
            seed=0, rounds=2, prefill=[128], batch=[]))
        errors = contextlib.redirect_stderr(io.StringIO())
        errors.__enter__()
        self.addCleanup(errors.__exit__, None, None, None)

    def names(self, label):
        return {name for model, _, name in self.taken.samples if model == label}

    def test_wrong_logits(self):
        engines = [FakeEngine("moe-bench"), FakeEngine("llama", ((1.01, -1.0),)),
                   FakeEngine("ik", ((0.9, -1.0),))]
        class Files:
            vocab_size = 2
        left = self.taken.check_logits("m", Files(), engines, None, ([1], ((1.0, -1.0),)))
        self.assertEqual([engine.name for engine in left], ["moe-bench", "llama"])
        self.assertTrue(engines[2].stopped)
        self.assertEqual(self.taken.wrong, ["m: ik: logits"])
        self.assertGreater(self.taken.errors["m", "ik"], self.taken.errors["m", "llama"])

    def test_too_few_experts(self):
        engines = [FakeEngine("moe-bench", experts={128: 64.0}), FakeEngine("llama",
                   experts={128: 8.0}), FakeEngine("ik", experts={128: 63.0})]
        self.taken.take_rounds("m", engines, None, self.SIZES)
        self.assertEqual(self.names("m"), {"moe-bench", "ik"})
        self.assertEqual(len(self.taken.samples["m", "prefill 128", "ik"]), 2)
        self.assertEqual(self.taken.wrong, ["m: llama: 8.0 experts in prefill 128"])

    def test_a_peer_that_ends_is_left_out_and_the_others_go_on(self):
        self.taken.args.batch = [4]
        engines = [FakeEngine("moe-bench", experts={128: 64.0, 4: 26.0}),
                   FakeEngine("llama", experts={128: 64.0, 4: 26.0}, dies_in=1)]
        self.taken.take_rounds("m", engines, None, self.SIZES)
        self.assertEqual(self.names("m"), {"moe-bench"})
        self.assertEqual(self.taken.failed, ["m: llama: ended"])

    def test_without_ours_there_is_no_comparison(self):
        with self.assertRaises(figures.PeerError):
            self.taken.take_rounds("m", [FakeEngine("moe-bench", dies_in=0)], None, self.SIZES)


class Refusals(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, str(ROOT / "scripts" / "compare_peers.py"),
                               "--moe-bench", "moe-bench", *arguments], capture_output=True,
                              text=True)

    def test_nothing_to_compare_with_is_usage(self):
        self.assertEqual(self.run_script().returncode, 2)
        self.assertEqual(self.run_script("--llama", ".", "--rounds", "0").returncode, 2)
        for option, value in (("--formats", "q8_0,q5_0"), ("--parts", "whole"), ("--models", "x")):
            done = self.run_script("--llama", ".", option, value)
            self.assertEqual(done.returncode, 2, option)
            self.assertIn(value.split(",")[-1], done.stderr)
        # The quantiser is one of the libraries'.
        self.assertEqual(self.run_script("--vllm", ".", "--formats", "q8_0").returncode, 2)

    def test_what_is_not_there_is_named_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for option in ("--llama", "--ik", "--vllm"):
                done = self.run_script(option, folder)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertRegex(done.stderr, rf"^compare_peers: {option} [^\n]+\n$")


if __name__ == "__main__":
    unittest.main()
