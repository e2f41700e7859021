"""A running `bellhop serve` for tests: started on a free port, stopped with SIGTERM, its log shown when it fails."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "tiny-moe-q4_0.gguf"
MODEL_ID = "tiny-moe-q4_0"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60

program = None  # set by server_test.py


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("BELLHOP_")}


def run_json(*arguments):
    """The JSON result of another command of the program."""
    done = subprocess.run([program, *map(os.fspath, arguments), "--json"], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=START_TIMEOUT_S, env=clean_environment(), check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode(errors="replace"))
    return json.loads(done.stdout.decode("utf-8"))


class Server:
    """Ready to answer when constructed. `url` has no slash at its end."""

    def __init__(self, *options, model=MODEL):
        self._log = tempfile.TemporaryFile(prefix="bellhop_serve_")
        self._out = tempfile.TemporaryFile(prefix="bellhop_serve_")
        self.process = subprocess.Popen([program, "serve", os.fspath(model), "--port", "0", "--json", *options],
                                        stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._log,
                                        env=clean_environment())
        try:
            self.url = self._wait_for_address()
            self.port = int(self.url.rsplit(":", 1)[1])
            self._wait_until_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def log(self):
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _fail_if_ended(self, deadline, what):
        if self.process.poll() is not None:
            raise AssertionError(f"bellhop serve ended with {self.process.returncode}:\n{self.log()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"bellhop serve {what} within {START_TIMEOUT_S} s:\n{self.log()}")
        time.sleep(0.02)

    def _wait_for_address(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            self._out.seek(0)
            try:
                return json.loads(self._out.read())["url"]
            except json.JSONDecodeError:  # not written, or not all of it
                self._fail_if_ended(deadline, "did not print its address")

    def _wait_until_ready(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=10):
                    return
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
            self._fail_if_ended(deadline, "was not ready")

    def stop(self):
        """The exit status after SIGTERM."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"bellhop serve did not stop on SIGTERM:\n{self.log()}") from None
        finally:
            self._log.close()
            self._out.close()

    def get(self, path, key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=60) as answer:
            return json.loads(answer.read())

    def wait_until_idle(self, timeout_s=30):
        """Waits until no sequence holds a slot or waits for one."""
        deadline = time.monotonic() + timeout_s
        while True:
            experts = self.get("/experts")
            busy = [slot for slot in self.get("/slots") if slot["is_processing"]]
            if not busy and experts["queued"] == 0:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"still busy after {timeout_s} s: {busy}, {experts['queued']} queued")
            time.sleep(0.02)


class ServerTest(unittest.TestCase):
    """A server for all tests of a class; it must still run, be idle, and end with status 0 after them."""

    maxDiff = 2000
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.options)
        cls.addClassCleanup(cls._stop)

    @classmethod
    def _stop(cls):
        running = cls.server.process.poll() is None
        log = cls.server.log()
        status = cls.server.stop()
        if not running or status != 0:
            raise AssertionError(f"bellhop serve {'ended' if not running else 'stopped'} with {status}:\n{log}")
