#!/usr/bin/env python3
"""The launchers of scripts/launch: their syntax, and what they pass to whom.

    launch_test.py BUILD_FOLDER

Stand-ins for mpirun, torchrun and srun write down their arguments; every option of moe-a2a that a
launcher passes must be one that moe-a2a run knows.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LAUNCH = Path(__file__).resolve().parents[2] / "scripts" / "launch"
BINARY = Path(sys.argv.pop() if len(sys.argv) > 1 else "build") / "bin" / "moe-a2a"

RECORDER = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["RECORD"], "w") as out:
    json.dump({"name": os.path.basename(sys.argv[0]), "args": sys.argv[1:]}, out)
sys.exit(int(os.environ.get("ENDS_WITH", "0")))
"""


def manifest_args(text):
    """The words of the container's args: one quoted text a line, as the file is written."""
    block = text[text.index("              args:"):text.index("              resources:")]
    return re.findall(r'^ +- "([^"]*)"$', block, re.MULTILINE)


class Launchers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name in ("mpirun", "torchrun", "srun"):
            path = Path(self.folder.name) / name
            path.write_text(RECORDER)
            path.chmod(0o755)

    def run_script(self, name, args, ends_with=0, **variables):
        """What the launcher was called with, and how the script ended."""
        record = Path(self.folder.name) / "record"
        kept = {k: v for k, v in os.environ.items() if not re.match(r"(NCCL|UCX)_", k)}
        env = {**kept, "PATH": f"{self.folder.name}:{os.environ['PATH']}", "RECORD": str(record),
               "ENDS_WITH": str(ends_with), **variables}
        done = subprocess.run(["bash", str(LAUNCH / name), *args], env=env, capture_output=True,
                              text=True, timeout=60, check=False)
        called = json.loads(record.read_text()) if record.exists() else None
        return called, done

    def assert_pair(self, args, option, value):
        self.assertIn(option, args)
        self.assertEqual(args[args.index(option) + 1], value)

    def test_scripts_are_valid_and_executable(self):
        scripts = sorted(LAUNCH.glob("*.sh"))
        self.assertEqual([s.name for s in scripts], ["mpirun.sh", "slurm.sh", "torchrun.sh"])
        for script in scripts:
            self.assertTrue(os.access(script, os.X_OK), script)
            subprocess.run(["bash", "-n", str(script)], check=True)
            if shutil.which("shellcheck"):
                subprocess.run(["shellcheck", str(script)], check=True)

    def test_mpirun_passes_ranks_hosts_variables_and_the_rest(self):
        called, done = self.run_script(
            "mpirun.sh", ["-n", "16", "-N", "8", "-H", "a:8,b:8", "-b", "mpi", "--",
                          "--min-of-bound", "0.8", "-o", "a file.json"],
            MOE_A2A="/opt/moe-a2a", MPIRUN_ARGS="--allow-run-as-root --oversubscribe",
            NCCL_IB_HCA="mlx5", UCX_TLS="rc", SECRET_TOKEN="x")
        self.assertEqual(done.returncode, 0, done.stderr)
        args = called["args"]
        self.assertEqual(called["name"], "mpirun")
        self.assert_pair(args, "-np", "16")
        self.assert_pair(args, "--map-by", "ppr:8:node")
        self.assert_pair(args, "-H", "a:8,b:8")
        exported = [args[i + 1] for i, word in enumerate(args) if word == "-x"]
        self.assertEqual(sorted(exported), ["NCCL_IB_HCA", "UCX_TLS"])
        self.assertIn("--oversubscribe", args)
        tail = args[args.index("/opt/moe-a2a"):]
        self.assertEqual(tail, ["/opt/moe-a2a", "run", "--backend", "mpi", "--min-of-bound", "0.8",
                                "-o", "a file.json"])

    def test_torchrun_passes_hosts_and_runs_no_python(self):
        called, done = self.run_script(
            "torchrun.sh", ["-g", "8", "-n", "2", "-r", "1", "-a", "node-0", "-p", "1234", "--",
                            "--gpu", "h100_sxm"])
        self.assertEqual(done.returncode, 0, done.stderr)
        args = called["args"]
        self.assert_pair(args, "--nnodes", "2")
        self.assert_pair(args, "--node-rank", "1")
        self.assert_pair(args, "--nproc-per-node", "8")
        self.assert_pair(args, "--master-addr", "node-0")
        self.assert_pair(args, "--master-port", "1234")
        self.assertEqual(args[args.index("--no-python"):],
                         ["--no-python", "moe-a2a", "run", "--backend", "nccl", "--gpu",
                          "h100_sxm"])

    def test_slurm_runs_one_step_that_ends_together(self):
        called, done = self.run_script("slurm.sh", ["--gpu", "h100_sxm"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--kill-on-bad-exit=1", called["args"])
        self.assertIn("--mpi=none", called["args"])
        self.assertEqual(called["args"][called["args"].index("moe-a2a"):],
                         ["moe-a2a", "run", "--backend", "nccl", "--gpu", "h100_sxm"])
        header = (LAUNCH / "slurm.sh").read_text().splitlines()
        directives = [line for line in header if line.startswith("#SBATCH ")]
        self.assertIn("#SBATCH --nodes=2", directives)
        # sbatch stops to look at the first command.
        first_command = next(i for i, line in enumerate(header) if line and line[0] != "#")
        self.assertTrue(all(header.index(d) < first_command for d in directives))

    def test_exit_codes_come_through(self):
        for script, args in (("mpirun.sh", ["-n", "2"]), ("torchrun.sh", ["-g", "2"]),
                             ("slurm.sh", [])):
            _, done = self.run_script(script, args, ends_with=6)
            self.assertEqual(done.returncode, 6, script)

    def test_wrong_use_is_refused_and_dry_runs_start_nothing(self):
        for script, args in (("mpirun.sh", []), ("mpirun.sh", ["-n"]),
                             ("torchrun.sh", ["-x", "1"])):
            called, done = self.run_script(script, args)
            self.assertEqual((called, done.returncode), (None, 2), script)
            self.assertIn("moe-a2a", done.stderr)
        called, done = self.run_script("mpirun.sh", ["-n", "2", "--dry-run"])
        self.assertIsNone(called)
        self.assertIn("-np 2", done.stdout)

    def test_the_manifest_asks_for_as_many_ranks_as_it_has_gpus(self):
        text = (LAUNCH / "kubernetes-mpijob.yaml").read_text()
        self.assertNotIn("\t", text)
        args = manifest_args(text)
        slots = int(re.search(r"slotsPerWorker: (\d+)", text).group(1))
        workers = int(re.search(r"Worker:\n +replicas: (\d+)", text).group(1))
        gpus = int(re.search(r"nvidia.com/gpu: (\d+)", text).group(1))
        self.assertEqual(gpus, slots)
        self.assert_pair(args, "-np", str(slots * workers))
        self.assert_pair(args, "--map-by", f"ppr:{slots}:node")
        try:
            import yaml
        except ImportError:
            return
        job = yaml.safe_load(text)
        self.assertEqual(job["kind"], "MPIJob")
        launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
        self.assertEqual(launcher["containers"][0]["args"], args)

    def test_mpirun_measures_for_real(self):
        if not BINARY.exists() or not shutil.which("mpirun"):
            self.skipTest("moe-a2a is not built, or there is no mpirun")
        backends = subprocess.run([str(BINARY), "--list-backends"], capture_output=True, text=True,
                                  timeout=60, check=False).stdout
        if not re.search(r"^mpi +available", backends, re.MULTILINE):
            self.skipTest("this build has no MPI")
        env = {**os.environ, "MOE_A2A": str(BINARY.resolve()),
               "MPIRUN_ARGS": "--allow-run-as-root --oversubscribe"}
        done = subprocess.run(
            ["bash", str(LAUNCH / "mpirun.sh"), "-n", "2", "-b", "mpi", "--", "--sizes", "64KiB",
             "--no-pairs", "--size-time", "20ms", "-q", "--format", "json"],
            env=env, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["metrics"]["num_ranks"]["value"], 2)
        self.assertEqual(report["settings"]["launcher"], "Open MPI")

    def test_options_are_those_of_moe_a2a(self):
        if not BINARY.exists():
            self.skipTest(f"{BINARY} is not built")
        known = subprocess.run([str(BINARY), "run", "--help"], capture_output=True, text=True,
                               timeout=60, check=False).stdout
        passed = manifest_args((LAUNCH / "kubernetes-mpijob.yaml").read_text())
        passed = passed[passed.index("moe-a2a"):]
        for script in LAUNCH.glob("*.sh"):
            comment = script.read_text().split("set -euo")[0]
            for example in re.findall(r"^#   .*", comment, re.MULTILINE):
                options = example.split(" -- ")[-1] if " -- " in example else ""
                passed += options.split()
        for word in passed:
            if re.match(r"--?[a-z]", word):
                self.assertRegex(known, rf"(?<![\w-]){re.escape(word)}(?![\w-])")


if __name__ == "__main__":
    unittest.main()
