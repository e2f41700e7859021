"""--hugepages and --prefault, and a model file that changes while it is in use."""

import ctypes
import json
import os
import subprocess
import unittest

import bellhop_process
from bellhop_process import MODEL, TIMEOUT_S, ProgramTest, clean_environment

RAW = ("run", "--raw", "--greedy", "-p", "The king said to the people", "-n", "24", "--ignore-eos")


def transparent_huge_pages():
    """The mode in force, "" where there are none."""
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
            return file.read().split("[")[1].split("]")[0]
    except OSError:
        return ""


def deny_huge_pages():
    """In the child before exec: the kernel gives it small pages alone, as a machine does whose memory is in pieces."""
    pr_set_thp_disable = 41  # prctl(2)
    ctypes.CDLL(None).prctl(pr_set_thp_disable, 1, 0, 0, 0)


class HugePagesTest(ProgramTest):
    def test_tokens_are_the_same_wherever_experts_lie(self):
        expected = self.ok_json(*RAW)["ids"]
        config = self.file("settings.json", json.dumps({"hugepages": "auto", "prefault": "off"}))
        self.assertEqual(self.ok_json(*RAW, "--hugepages", "auto")["ids"], expected)
        self.assertEqual(self.ok_json(*RAW, "--config", config)["ids"], expected)
        self.assertEqual(self.ok_json(*RAW, env={"BELLHOP_HUGEPAGES": "auto"})["ids"], expected)
        for mode in ("off", "auto", "required"):
            self.assertEqual(self.ok_json(*RAW, "--prefault", mode)["ids"], expected, mode)

    def test_the_share_that_was_reached_is_reported(self):
        if transparent_huge_pages() not in ("always", "madvise"):
            self.assertIn("vm.nr_hugepages", self.fails(*RAW, "--hugepages", "required"))
            return
        done = bellhop_process.call(*RAW, "--hugepages", "auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr.decode(), r"expert memory: 14\.2 MB .*on huge pages \(\d+ %\)")
        self.assertRegex(done.stderr.decode(), r"expert weights 14\.7 MB \(huge pages\)")

    def test_small_pages_are_reported_or_refused(self):
        if transparent_huge_pages() not in ("always", "madvise"):
            self.skipTest("refused for another reason: no huge pages")

        def run(mode):
            return subprocess.run([bellhop_process.program, *RAW, "--hugepages", mode], stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=TIMEOUT_S, env=clean_environment(), check=False,
                                  preexec_fn=deny_huge_pages)

        refused = run("required")
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertEqual(refused.stdout, b"")
        self.assertRegex(refused.stderr.decode(), r"error: .*--hugepages required: .* are on small pages: .*vm.nr_hugepages=\d+")
        done = run("auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, bellhop_process.call(*RAW).stdout)
        self.assertRegex(done.stderr.decode(), r"expert memory: .* on huge pages \(\d+ %\)")
        self.assertIn(b"note: --hugepages auto: ", done.stderr)

    def test_a_copy_that_does_not_fit_is_refused_with_figures(self):
        if transparent_huge_pages() not in ("always", "madvise"):
            self.skipTest("refused for another reason: no huge pages")
        reason = self.fails(*RAW, "--hugepages", "required", "--ram", "20MB", code=1)
        self.assertIn("--hugepages required: a copy of the experts 14.7 MB + other weights 3.07 MB", reason)
        self.assertIn("--ram (20.0 MB)", reason)
        done = bellhop_process.call(*RAW, "--hugepages", "auto", "--ram", "20MB")
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"note: --hugepages auto: the experts are read from the mapped file", done.stderr)
        self.assertIn(b"--prefault required", bellhop_process.call(*RAW, "--prefault", "required", "--ram", "20MB").stderr)


class ShrinkingFileTest(ProgramTest):
    def test_a_model_that_becomes_shorter_is_named(self):
        model = self.file("shrinking.gguf", MODEL.read_bytes())
        command = [bellhop_process.program, "run", "-cnv", "--greedy", "-n", "4", "--ignore-eos", "-q", "-m", model]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=clean_environment()) as process:
            self.addCleanup(process.kill)
            process.stdin.write(b"Define: abeyance\n")
            process.stdin.flush()
            self.assertTrue(process.stdout.read(1))  # the model is loaded and works
            os.truncate(model, 100_000)
            _, errors = process.communicate(b"Define: courage\n", timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 1, errors)
        self.assertEqual(errors.decode(), f"bellhop: error: {model}: the file became shorter while it was in use; start "
                                          "again with a whole file, and replace files by renaming new ones over them\n")


if __name__ == "__main__":
    unittest.main()
