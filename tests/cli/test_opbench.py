"""bellhop opbench, on layers so small that every format and kernel bundle is tried."""

import errno
import json
import math
import os
import pty
import re
import signal
import subprocess
import termios
from pathlib import Path

import bellhop_process
from bellhop_process import MODEL, ROOT, TIMEOUT_S, ProgramTest, clean_environment, wait_until_caught

KEYS = {"format", "isa", "threads", "rows", "us", "us_p90", "us_min", "reps", "gbps", "share", "ratio_to_scalar",
        "hidden", "inter", "active", "topk", "experts", "distinct_experts", "weight_bytes", "tflops", "class",
        "over_dram_us", "kernel"}
TINY = ("opbench", "--hidden", "256", "--inter", "256", "--active", "2", "--rotate", "1MiB", "--reps", "2", "-t", "1")


class OpbenchTest(ProgramTest):
    def test_every_format_with_two_bundles(self):
        result = self.ok_json(*TINY, "--device", "cpu", "--format", "all", "--isa", "reference,auto", "--rows", "1,40")
        self.assertEqual(result["name"], "cpu_cold")
        self.assertTrue(result["complete"])
        self.assertLessEqual({"slug", "gpu", "driver", "cpu", "cores", "isa"}, result["machine"].keys())
        self.assertRegex(result["commit"], r"^([0-9a-f]{7,40}(-dirty)?|unknown)$")
        self.assertRegex(result["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertTrue(result["command"].startswith("bellhop opbench --hidden 256 "), result["command"])
        self.assertGreater(result["ceilings"]["cpu_read_gbps"], 0)
        by_threads = result["ceilings"]["by_threads"]
        self.assertEqual([b["threads"] for b in by_threads], [1])
        self.assertLessEqual(by_threads[0]["min"], by_threads[0]["cpu_read_gbps"])
        self.assertLessEqual(by_threads[0]["cpu_read_gbps"], by_threads[0]["max"])

        cases = result["cases"]
        for case in cases:
            self.assertLessEqual(KEYS, case.keys())
            for key in ("us", "us_p90", "us_min", "gbps", "share", "ratio_to_scalar", "weight_bytes", "tflops"):
                self.assertGreater(case[key], 0, (key, case))
                self.assertTrue(math.isfinite(case[key]), (key, case))
            self.assertLessEqual(case["us_min"], case["us"])
            self.assertLessEqual(case["us"], case["us_p90"])
            self.assertEqual(case["class"], "prompt" if case["rows"] > 32 else "decode")
            self.assertAlmostEqual(case["gbps"], case["weight_bytes"] / case["us"] / 1e3)
            self.assertAlmostEqual(case["share"], case["gbps"] / result["ceilings"]["cpu_read_gbps"])
            self.assertAlmostEqual(case["tflops"], 2 * 3 * 256 * 256 * 2 * case["rows"] / case["us"] / 1e6)
            if case["isa"] == "reference":
                self.assertAlmostEqual(case["ratio_to_scalar"], 1)
        measured = {(case["format"], case["isa"] == "reference", case["rows"]) for case in cases}
        formats = {case["format"] for case in cases}
        self.assertLessEqual({"q4_0", "q4_k", "q6_k", "iq1_s", "mxfp4", "f32", "int4_b32", "int4sm80_b32", "int3_b64",
                              "int8_b32", "mxfp4_b32", "nvfp4_b16"}, formats)
        for name in formats:
            for rows in (1, 40):
                self.assertIn((name, True, rows), measured)
        has_vectors = any(case["isa"] != "reference" for case in cases)
        self.assertEqual(len(cases), len(measured))
        self.assertEqual(len(measured), len(formats) * (4 if has_vectors else 2))

    def test_tables_and_the_result_file(self):
        out = self.folder / "cpu_cold.json"
        arguments = (*TINY, "--format", "q4_0", "--isa", "auto", "--rows", "1,2", "--topk", "1")
        table = self.ok(*arguments, "--out", out).splitlines()
        self.assertRegex(table[0], r"^\| format \| isa +\| threads \| rows \| class +\| +us \| ")
        self.assertRegex(table[2], r"^\| q4_0 +\| \w+ +\| +1 \| +1 \| decode \| +[\d.]+ \|")
        self.assertIn("one layer of hidden 256 x inter 256: 2 experts of a call, 1 of a row", "\n".join(table))
        self.assertIn("read bandwidth with 1 thread(s): ", "\n".join(table))
        cases = json.loads(out.read_text())["cases"]
        self.assertEqual([(c["rows"], c["distinct_experts"]) for c in cases], [(1, 1), (2, 2)])
        rows = self.ok(*arguments, "-o", "csv").splitlines()
        self.assertEqual(rows[0].split(",")[:3], ["format", "isa", "kernel"])
        self.assertEqual(len(rows), 3)
        self.assertEqual({row.count(",") for row in rows}, {rows[0].count(",")})

    def test_environment_twins(self):
        env = {"BELLHOP_FORMAT": "q8_0,int8_b32", "BELLHOP_ROWS": "3", "BELLHOP_ISA": "reference"}
        cases = self.ok_json(*TINY, env=env)["cases"]
        self.assertEqual([(c["format"], c["isa"], c["rows"]) for c in cases],
                         [("q8_0", "reference", 3), ("int8_b32", "reference", 3)])

    def test_errors(self):
        self.assertIn("--device cpu", self.fails("opbench", "--device", "cuda"))
        self.assertIn("--inter 100 with q4_0", self.fails("opbench", "--format", "q4_0", "--inter", "100"))
        self.assertIn("--format 'q4_9': expects all, gguf, onnx", self.fails("opbench", "--format", "q4_9"))
        self.assertIn("lower --rotate", self.fails("opbench", "--format", "q4_0", "--rotate", "900TiB"))
        missing = self.folder / "no" / "folder.json"
        self.assertIn("there is no folder", self.fails(*TINY, "--format", "q4_0", "--out", missing))
        self.assertIn("there is no folder", self.fails("bench", "--out", missing))

    def interrupted_run(self, until):
        """Runs 32 cases with a terminal as standard error and interrupts them once `until(process, terminal)` returns:
        the exit status, what the terminal shows after that and the folder's result file."""
        out = self.folder / "part.json"
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (25, 120))
        self.addCleanup(os.close, master)
        arguments = (*TINY[:-4], "-t", "1", "--format", "q8_0", "--rows", ",".join(map(str, range(1, 33))),
                     "--isa", "auto", "--reps", "10000", "--out", out)
        with subprocess.Popen([bellhop_process.program, *arguments], stdout=subprocess.DEVNULL, stderr=slave,
                              env=clean_environment()) as process:
            os.close(slave)
            until(process, master)
            process.send_signal(signal.SIGINT)
            errors = b""
            try:
                while part := os.read(master, 4096):
                    errors += part
            except OSError as error:  # Linux: the last user of the terminal's other end is gone
                self.assertEqual(error.errno, errno.EIO)
            return process.wait(timeout=TIMEOUT_S), errors, out

    def test_an_interruption_leaves_the_complete_cases(self):
        def until_some_are_complete(_, terminal):
            seen = b""
            while not re.search(rb"(5[1-9]|[6-9]\d) %", seen):  # the first half measures what cases are compared with
                seen += os.read(terminal, 4096)

        code, errors, out = self.interrupted_run(until_some_are_complete)
        self.assertEqual(code, 0, errors)
        self.assertIn(b"interrupted: these are the cases that were complete", errors)
        result = json.loads(out.read_text())
        self.assertIs(result["complete"], False)
        self.assertIn(len(result["cases"]), range(1, 32))

    def test_an_early_interruption_says_that_nothing_was_measured(self):
        code, errors, out = self.interrupted_run(lambda process, _: wait_until_caught(process, signal.SIGINT))
        self.assertEqual(code, 1, errors)
        self.assertIn(b"nothing was measured before the interruption", errors)
        self.assertFalse(out.exists())

    def test_run_cpu_writes_every_result(self):
        out = self.folder / "results"
        script = ROOT / "bench" / "run_cpu.sh"
        done = subprocess.run([script, "--bin", Path(bellhop_process.program).parent, "--out", out, "--quick",
                               "--formats", "q4_0,int4_b32", "--threads", "1", "--budget", "2400",
                               "--model", MODEL],
                              capture_output=True, timeout=1200, env=clean_environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("cpu_cold", "cpu_cold_rows", "cpu_cold_threads", "cpu_cold_latency", "cpu_cold_prompt1",
                     "cpu_cold_prompt8", "cpu_cold_prefill", "bench"):
            self.assertTrue(json.loads((out / f"{name}.json").read_text())["cases"], name)
        self.assertIn(b"## cpu_cold_latency", done.stdout)
        self.assertRegex(done.stdout.decode(), r"\nq4_0 +\w+ +[\d.]+ +\d+% +\d+\.\d\d x\n")
        for wrong in (["--bin", "/nonexistent", "--out", out], ["--out"], ["--bin", ".", "--budget", "soon"]):
            self.assertEqual(subprocess.run([script, *wrong], capture_output=True, check=False).returncode, 2, wrong)
