"""Running the program from tests: one place for its path, a clean environment and time limits."""

import json
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "tiny-moe-q4_0.gguf"
GOLDEN = ROOT / "tests" / "golden" / "tiny-moe"
TIMEOUT_S = 120

program = None  # set by cli_test.py


def clean_environment(extra=None):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BELLHOP_")}
    return {**kept, **(extra or {})}


def call(*arguments, stdin=b"", env=None, cwd=None):
    """Runs the program to its end; standard input is what is given, never a terminal."""
    return subprocess.run([program, *map(os.fspath, arguments)], input=stdin, capture_output=True, cwd=cwd,
                          timeout=TIMEOUT_S, env=clean_environment(env), check=False)


def wait_until_caught(process, number):
    """Returns once the running `process` has a handler for the signal `number` (Linux: SigCgt of its status)."""
    deadline = time.monotonic() + TIMEOUT_S
    while process.poll() is None:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
        if caught >> (number - 1) & 1:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"no handler for signal {number} after {TIMEOUT_S} s")
        time.sleep(0.01)
    raise AssertionError(f"the program ended with {process.returncode} before it had a handler for signal {number}")


class ProgramTest(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="bellhop_cli_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def ok(self, *arguments, **options):
        """Standard output of a call that must succeed, as text."""
        done = call(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout.decode("utf-8")  # strict: results are valid UTF-8

    def ok_json(self, *arguments, **options):
        done = call(*arguments, "--json", **options)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return json.loads(done.stdout.decode("utf-8"))

    def fails(self, *arguments, code=2, **options):
        """The one line of reason of a call that must fail with `code` and print no result."""
        done = call(*arguments, **options)
        errors = done.stderr.decode("utf-8", errors="replace")
        self.assertEqual(done.returncode, code, errors)
        self.assertEqual(done.stdout, b"")
        lines = [line for line in errors.splitlines() if line.startswith("bellhop: error: ")]
        self.assertEqual(len(lines), 1, errors)
        self.assertTrue(errors.endswith(lines[0] + "\n"), errors)
        return lines[0].removeprefix("bellhop: error: ")

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path
