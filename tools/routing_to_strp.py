#!/usr/bin/env python3
"""The popularity that a synthetic model was made with, as an expert profile for `--profile`.

    python3 tools/routing_to_strp.py MODEL.gguf.routing.json OUT.strp

MODEL.gguf.routing.json: what make_synthetic_gguf.py writes beside a model; "order" holds, for each layer, the ids of its
experts from hottest to coldest. OUT.strp (format: src/plan/expert_profile.h): the pairs of all layers by that rank.
Standard Python only.
"""

import json
import struct
import sys


def profile(order):
    layers, experts = len(order), len(order[0])
    for layer, ids in enumerate(order):
        if sorted(ids) != list(range(experts)):
            raise SystemExit(f"layer {layer}: not an order of {experts} experts")
    pairs = [(layer, order[layer][rank]) for rank in range(experts) for layer in range(layers)]
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    return (struct.pack("<4s5I", b"STRP", 1, layers, experts, len(pairs), len(pairs)) +
            b"".join(struct.pack("<2H", *pair) for pair in pairs) +
            b"".join(struct.pack("<i", ranks[layer, expert]) for layer in range(layers) for expert in range(experts)))


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        order = json.load(file)["order"]
    with open(sys.argv[2], "wb") as file:
        file.write(profile(order))


if __name__ == "__main__":
    main()
