#!/usr/bin/env python3
"""What HTTP adds to the engine: time to the first byte of a stream against the engine's time to the first token, and
the time per token of a stream against the engine's.

    python3 bench/server_overhead.py PATH/TO/bellhop MODEL.gguf --reps 15 --out bench/results/MACHINE/server_overhead.json

The engine's figures are those of `bellhop run --json` with the same prompt, threads and tokens; runs alternate, figures
are medians. Standard Python only.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import time

from server_load import get, result_file, start

PROMPT = "The captain looked at the sea and"


def engine_run(program, model, threads, tokens):
    done = subprocess.run([program, "run", model, "-p", PROMPT, "--raw", "--greedy", "--ignore-eos", "-n", str(tokens), "-t",
                           str(threads), "--json"], capture_output=True, check=True)
    result = json.loads(done.stdout)
    timings = result["timings"]
    return timings["prompt_ms"], timings["decode_ms"] / (len(result["ids"]) - 1)


def stream_run(address, tokens):
    """Milliseconds from sending the request to the first event with text, and per token after it."""
    connection = http.client.HTTPConnection(address)
    body = json.dumps({"prompt": PROMPT, "temperature": 0, "ignore_eos": True, "max_tokens": tokens, "stream": True,
                       "cache_prompt": False})
    connection.connect()
    begin = time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    first = last = None
    while line := answer.readline():
        if line.startswith(b"data: {"):
            last = time.perf_counter()
            first = first or last
    connection.close()
    return (first - begin) * 1e3, (last - first) * 1e3 / (tokens - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--reps", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out")
    options = parser.parse_args()
    server, url = start(options.program, options.model, ["--parallel", "1", "-t", str(options.threads)])
    try:
        props = get(url, "/props")
        address = url.split("//")[1]
        engine, stream = [], []
        for _ in range(options.reps):
            engine.append(engine_run(options.program, options.model, options.threads, options.tokens))
            stream.append(stream_run(address, options.tokens))
    finally:
        server.terminate()
        server.wait()
    median = [statistics.median(column) for column in (*zip(*engine), *zip(*stream))]
    case = {"model": props["model_path"], "threads": options.threads, "tokens": options.tokens,
            "repetitions": options.reps, "engine_first_token_ms": median[0], "engine_token_ms": median[1],
            "stream_first_byte_ms": median[2], "stream_token_ms": median[3], "first_byte_ratio": median[2] / median[0],
            "token_ratio": median[3] / median[1]}
    result = result_file("server_overhead", props, f"bench/server_overhead.py --reps {options.reps} --tokens "
                         f"{options.tokens} --threads {options.threads}", [case])
    text = json.dumps(result, indent=1) + "\n"
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
