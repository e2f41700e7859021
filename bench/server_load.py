#!/usr/bin/env python3
"""Load on `bellhop serve`: many connections at once, a share of them dropped or malformed.

    python3 bench/server_load.py PATH/TO/bellhop MODEL.gguf --seconds 120 --out bench/results/MACHINE/server.json

Every well-formed request is greedy, and its answer is compared with what the server gave to the same request alone,
before the load. Standard Python only. Exits 1 on errors, answers that differ, or a server that does not come to rest.
"""

import argparse
import asyncio
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

WORDS = ("The captain looked at the sea", "In the beginning", "The function returns", "Blessed is the man",
         "A lighthouse is", "It was a cold night", "The table has two columns", "She said that", "Once upon a time",
         "The war of", "Python lists are", "O Lord")
MALFORMED = (b"GARBAGE\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{\"prompt\"",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{\"prompt\":1.5}")
READ_LIMIT_S = 300


def make_requests():
    """(body) of each kind of well-formed request: prompts of several lengths, some longer than one chunk of cache."""
    bodies = []
    for at, words in enumerate(WORDS):
        prompt = words if at % 3 else f"{words} and the sea" * 30
        bodies.append({"prompt": prompt, "max_tokens": 8 + 4 * at, "temperature": 0, "ignore_eos": True})
    return bodies


def post(url, body):
    call = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                  {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=READ_LIMIT_S) as answer:
        return json.loads(answer.read())


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return json.loads(answer.read())


def start(program, model, options):
    server = subprocess.Popen([program, "serve", model, "--port", "0", "--json", *options], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    text = b""
    while b"}" not in text:
        line = server.stdout.readline()
        if not line:
            raise SystemExit(f"server_load: the server ended with {server.wait()} before it listened")
        text += line
    url = json.loads(text)["url"]
    while True:
        try:
            get(url, "/health")
            return server, url
        except urllib.error.HTTPError as error:
            if error.code != 503 or server.poll() is not None:
                raise
            time.sleep(0.1)


def rss_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Load:
    def __init__(self, url, bodies, expected, bad_share, deadline):
        self.port = int(url.rsplit(":", 1)[1])
        self.bodies, self.expected, self.bad_share, self.deadline = bodies, expected, bad_share, deadline
        self.answers = self.tokens = self.dropped = self.malformed = self.mismatches = self.refused = 0
        self.errors, self.ttft = [], []

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port)

    def head(self, body):
        return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body

    async def read_events(self, reader, started):
        """Text, tokens and time of the first event of a streamed answer; the status when it is refused."""
        line = await reader.readline()
        status = int(line.split()[1]) if line.startswith(b"HTTP/") else 0
        text, tokens, first, done = "", 0, None, False
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            first = first or time.monotonic() - started
            if line.strip() == b"data: [DONE]":
                done = True
                break
            event = json.loads(line[6:])
            if "error" in event:
                raise ValueError(event["error"]["message"])
            for choice in event["choices"]:
                text += choice["text"]
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        if status == 200 and not done:
            raise ValueError("the stream ended early")
        return status, text, tokens, first

    async def good(self, rng):
        at = rng.randrange(len(self.bodies))
        body = json.dumps({**self.bodies[at], "stream": True, "stream_options": {"include_usage": True}}).encode()
        started = time.monotonic()
        reader, writer = await self.connect()
        try:
            writer.write(self.head(body))
            await writer.drain()
            status, text, tokens, first = await asyncio.wait_for(self.read_events(reader, started), READ_LIMIT_S)
        finally:
            writer.close()
        if status == 429:
            self.refused += 1
            await asyncio.sleep(0.2)
        elif status != 200:
            self.errors.append(f"status {status}")
        else:
            self.answers += 1
            self.tokens += tokens
            self.ttft.append(first)
            self.mismatches += text != self.expected[at]

    async def drop(self, rng):
        """Leaves in the middle of an answer, or before it."""
        self.dropped += 1
        _, writer = await self.connect()
        body = json.dumps({"prompt": rng.choice(WORDS), "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
        writer.write(self.head(body)[:rng.choice((30, 150, 10_000))])
        await asyncio.sleep(rng.random() * 0.5)
        writer.transport.abort()

    async def send_malformed(self, rng):
        self.malformed += 1
        reader, writer = await self.connect()
        writer.write(rng.choice(MALFORMED))
        try:
            await asyncio.wait_for(reader.read(4096), 1)
        except (asyncio.TimeoutError, ConnectionError):
            pass
        writer.transport.abort()

    async def client(self, seed):
        rng = random.Random(seed)
        while time.monotonic() < self.deadline:
            draw = rng.random()
            try:
                if draw < self.bad_share / 2:
                    await self.drop(rng)
                elif draw < self.bad_share:
                    await self.send_malformed(rng)
                else:
                    await self.good(rng)
            except (OSError, ValueError, asyncio.TimeoutError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")

    async def watch(self, pid, samples):
        while time.monotonic() < self.deadline:
            samples.append(rss_bytes(pid))
            await asyncio.sleep(1)

    async def run(self, connections, pid, samples):
        await asyncio.gather(self.watch(pid, samples), *(self.client(seed) for seed in range(connections)))


def rest(url):
    """Seconds until no slot is busy and nothing waits; None: not within a minute."""
    started = time.monotonic()
    while time.monotonic() - started < 60:
        if get(url, "/experts")["queued"] == 0 and not any(slot["is_processing"] for slot in get(url, "/slots")):
            return time.monotonic() - started
        time.sleep(0.05)
    return None


def percentile(values, share):
    ordered = sorted(values)
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 4) if ordered else None


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return ""


def result_file(name, props, command, cases):
    """The shape that all results have (bench/README.md)."""
    return {"name": name, "commit": props["build"]["commit"],
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "command": command,
            "machine": {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "isa": props["backend"]["isa"],
                        "gpu": None, "driver": None},
            "ceilings": {}, "cases": cases}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--bad-share", type=float, default=0.2, help="of connections dropped or malformed [0.2]")
    parser.add_argument("--out", help="result file; standard output without it")
    arguments = parser.parse_args()

    options = ["--parallel", str(arguments.parallel), "--connections", str(arguments.connections + 56), "--queue",
               str(arguments.connections)]
    server, url = start(arguments.program, arguments.model, options)
    try:
        props = get(url, "/props")
        bodies = make_requests()
        expected = [post(url, body)["choices"][0]["text"] for body in bodies]
        samples = [rss_bytes(server.pid)]
        started = time.monotonic()
        load = Load(url, bodies, expected, arguments.bad_share, started + arguments.seconds)
        asyncio.run(load.run(arguments.connections, server.pid, samples))
        seconds = time.monotonic() - started
        rest_s = rest(url)
        samples.append(rss_bytes(server.pid))
        after = [post(url, body)["choices"][0]["text"] for body in bodies]
    finally:
        server.send_signal(signal.SIGTERM)
        exit_status = server.wait(120)

    load.mismatches += sum(a != b for a, b in zip(after, expected))
    case = {"model": props["model_path"], "parallel": arguments.parallel, "connections": arguments.connections,
            "seconds": round(seconds, 1), "answers": load.answers, "tokens_per_s": round(load.tokens / seconds, 1),
            "ttft_s_p50": percentile(load.ttft, 0.5), "ttft_s_p99": percentile(load.ttft, 0.99),
            "errors": len(load.errors), "mismatches": load.mismatches, "refused_429": load.refused,
            "dropped": load.dropped, "malformed": load.malformed, "rss_bytes_start": samples[0],
            "rss_bytes_quarter": samples[len(samples) // 4], "rss_bytes_half": samples[len(samples) // 2],
            "rss_bytes_peak": max(samples), "rss_bytes_end": samples[-1], "rest_s": rest_s and round(rest_s, 2),
            "exit_status": exit_status}
    result = result_file("server", props, f"bench/server_load.py --seconds {arguments.seconds:g} --connections "
                         f"{arguments.connections} --parallel {arguments.parallel} --bad-share "
                         f"{arguments.bad_share:g}", [case])
    text = json.dumps(result, indent=1) + "\n"
    if arguments.out:
        Path(arguments.out).parent.mkdir(parents=True, exist_ok=True)
        Path(arguments.out).write_text(text)
    else:
        print(text, end="")
    for error in sorted(set(load.errors))[:10]:
        print(f"server_load: {load.errors.count(error)} times: {error}", file=sys.stderr)
    return 0 if not (load.errors or load.mismatches or rest_s is None or exit_status != 0) and load.answers else 1


if __name__ == "__main__":
    sys.exit(main())
