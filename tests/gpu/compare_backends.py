#!/usr/bin/env python3
"""Greedy tokens and last-position logits of a model on the GPU against the CPU backend's, at several residencies.

    python3 tests/gpu/compare_backends.py PATH/TO/bellhop MODEL.gguf [--residency 0,25,50,75,100] [--lanes cpu,pcie]
        [--tokens 64] [--out FILE.json]

Needs a GPU. Standard Python only. Exit code 1 when a bar is not met: with --act f32 equal tokens for every prompt and a
relative L2 of at most 1e-4; by default at least all but one prompt equal and at most 5e-3, also for a prompt of many
pages, whose logits must be bit for bit those of other chunk sizes. Sampled text (a seed, a
temperature, a penalty) must be the same whether the GPU samples or the host does, for every prompt, and with --act f32
the CPU backend's for all prompts but one: a logit's last bits may decide a draw.
"""

import argparse
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

PROMPTS = ["The captain looked at the sea and", "Once upon a time there was a little", "def add(a, b):\n    return",
           "In the year 1820 the city of", "Grüße aus München, meine liebe", "\"I do not know,\" said the old man. \""]

# Several pages of the KV cache and tiles of rows.
LONG_PROMPT = " ".join(" ".join(PROMPTS[i:] + PROMPTS[:i]) for i in range(len(PROMPTS)))


def run(program, *options):
    done = subprocess.run([program, *options], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join([program, *options[:24]])}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


SAMPLED = ["--seed", "7", "--temp", "0.9", "--repeat-penalty", "1.1"]
# More edits of the logits than the GPU takes, none of which changes one: the host samples.
ON_THE_HOST = [word for token in range(1100) for word in ("--logit-bias", f"{token}+0")]


def generate(program, model, prompt, tokens, options):
    out = run(program, "run", model, "-p", prompt, "--raw", "--ignore-eos", "-n", str(tokens), "--json", *options)
    result = json.loads(out)
    return result["ids"], result["experts"]


def greedy(program, model, prompt, tokens, options):
    return generate(program, model, prompt, tokens, ["--greedy", *options])


def read_npy(path):
    data = open(path, "rb").read()
    size = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + size].decode(), {"__builtins__": {}}, {"False": False, "True": True})  # a literal dict
    assert header["descr"] == "<f4", header
    count = math.prod(header["shape"])
    return struct.unpack(f"<{count}f", data[10 + size:10 + size + 4 * count])


def logits(program, model, prompt, options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits.npy")
        run(program, "logits", model, "-p", prompt, "--out", path, *options)
        return read_npy(path)


def relative_l2(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--residency", default="0,25,50,75,100")
    parser.add_argument("--lanes", default="cpu,pcie")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--out")
    options = parser.parse_args()
    failed = False
    rows = []
    for act, bar, spare in (("f32", 1e-4, 0), ("auto", 5e-3, 1)):
        cpu = ["--device", "cpu", "--act", act]
        want = [greedy(options.program, options.model, p, options.tokens, cpu)[0] for p in PROMPTS]
        want_sampled = [generate(options.program, options.model, p, options.tokens, SAMPLED + cpu)[0] for p in PROMPTS]
        asked = PROMPTS + [LONG_PROMPT] if act == "auto" else PROMPTS
        want_logits = [logits(options.program, options.model, p, cpu) for p in asked]
        for lane in options.lanes.split(","):
            for residency in options.residency.split(","):
                gpu = ["--device", "cuda", "--act", act, "--miss-lane", lane, "--gpu-experts", residency + "%"]
                got = [greedy(options.program, options.model, p, options.tokens, gpu) for p in PROMPTS]
                equal = sum(ids == w for (ids, _), w in zip(got, want))
                hits = sum(e.get("hits", 0) for _, e in got)
                misses = sum(e.get("misses", 0) for _, e in got)
                worst = max(relative_l2(logits(options.program, options.model, p, gpu), w)
                            for p, w in zip(asked, want_logits))
                whole, cut = (logits(options.program, options.model, LONG_PROMPT, gpu + ["--batch-size", size])
                              for size in ("512", "37")) if act == "auto" else (None, None)
                chunks_equal = whole == cut
                sampled, on_host = (
                    [generate(options.program, options.model, p, options.tokens, SAMPLED + gpu + more)[0] for p in PROMPTS]
                    for more in ([], ON_THE_HOST))
                same_draws = sum(a == b for a, b in zip(sampled, on_host))
                sampled_equal = sum(a == b for a, b in zip(sampled, want_sampled))
                met = equal >= len(PROMPTS) - spare and worst <= bar and same_draws == len(PROMPTS) and chunks_equal
                met = met and (act != "f32" or sampled_equal >= len(PROMPTS) - 1)
                failed = failed or not met
                first = [next((i for i, (a, b) in enumerate(zip(ids, w)) if a != b), None) for (ids, _), w in zip(got, want)]
                rows.append({"act": act, "lane": lane, "residency": int(residency), "equal": equal, "prompts": len(PROMPTS),
                             "logits_relative_l2": worst, "chunks_equal": chunks_equal, "hits": hits, "misses": misses, "met": met,
                             "sampled_as_on_host": same_draws, "sampled_equal": sampled_equal,
                             "first_difference": first})
                print(f"act {act:5} lane {lane:5} residency {residency:>3} %: {equal} of {len(PROMPTS)} equal, sampled "
                      f"{sampled_equal} ({same_draws} as on the host), logits "
                      f"{worst:.2e}{'' if chunks_equal else ', CHUNKS DIFFER'}, hits {hits}, misses {misses}{'' if met else '  <-- bar not met ' + str(first)}", flush=True)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(rows, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
