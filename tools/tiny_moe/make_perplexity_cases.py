#!/usr/bin/env python3
"""Per-window reference values for the perplexity of the shipped model over the public-domain held-out text.

    python3 tools/tiny_moe/make_perplexity_cases.py

Reads the shipped GGUF file and tests/golden/tiny-moe/heldout-public-domain.jsonl, writes perplexity_sources.json and
two plain-text inputs beside the latter, and checks every source against the recorded perplexity.json. Needs what
make_golden.py needs; about three minutes on one core.
"""
import json
import math
import os

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import export_gguf
import make_golden

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
GOLDEN = os.path.join(ROOT, "tests", "golden", "tiny-moe")
WINDOW = 512
PLAIN = ("jargon", "chat-story")      # sources written as text files too
END = "<|endoftext|>"


def render(row):
    return row["t"] if "t" in row else "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in row["m"])


def main():
    torch.set_num_threads(1)
    with open(os.path.join(HERE, "config.json")) as f:
        config = json.load(f)
    tokenizer = Tokenizer.from_file(os.path.join(HERE, "tokenizer.json"))
    _, tensors = export_gguf.read_gguf(os.path.join(ROOT, "models", "tiny-moe-q4_0.gguf"))
    layers, experts = config["num_hidden_layers"], config["num_experts"]
    model = make_golden.load(config, export_gguf.to_hf_names(tensors, layers, experts))
    with open(os.path.join(GOLDEN, "perplexity.json")) as f:
        recorded = json.load(f)["q4_0"]["by_source"]
    documents = {}
    with open(os.path.join(GOLDEN, "heldout-public-domain.jsonl"), encoding="utf-8") as f:
        for row in map(json.loads, f):
            documents.setdefault(row["s"], []).append(render(row))
    encode = lambda s: tokenizer.encode(s, add_special_tokens=False).ids
    sources = {}
    for name, texts in documents.items():
        text = "".join(t + END for t in texts)
        ids = [i for t in texts for i in encode(t) + encode(END)]
        if encode(text) != ids:
            raise SystemExit(f"{name}: the joined text has other tokens than its documents")
        losses = []
        for at in range(0, len(ids) - WINDOW + 1, WINDOW):
            x = torch.tensor([ids[at:at + WINDOW]])
            with torch.no_grad():
                logits = model(x, use_cache=False).logits[0]
            losses.append(F.cross_entropy(logits[:-1], x[0, 1:], reduction="sum").item())
        scored = len(losses) * (WINDOW - 1)
        perplexity = math.exp(sum(losses) / scored)
        if abs(perplexity / recorded[name] - 1) > 2e-6:
            raise SystemExit(f"{name}: {perplexity} instead of {recorded[name]}")
        sources[name] = {"documents": len(texts), "tokens": len(ids), "windows": len(losses), "scored_tokens": scored,
                         "perplexity": round(perplexity, 5), "nll_sum": round(sum(losses), 3),
                         "window_nll_sums": [round(v, 3) for v in losses]}
        if name in PLAIN:
            with open(os.path.join(GOLDEN, f"heldout-{name}.txt"), "w", encoding="utf-8", newline="") as f:
                f.write(text)
        print(f"{name}: {len(losses)} windows, perplexity {perplexity:.5f}", flush=True)
    total, scored = (sum(s[k] for s in sources.values()) for k in ("nll_sum", "scored_tokens"))
    with open(os.path.join(GOLDEN, "perplexity_sources.json"), "w") as f:
        json.dump({"window": WINDOW, "all": {"perplexity": round(math.exp(total / scored), 5), "scored_tokens": scored},
                   "sources": sources}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
