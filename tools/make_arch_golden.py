#!/usr/bin/env python3
"""Makes tests/golden/arch: tiny random models of every architecture with reference outputs.

    python3 tools/make_arch_golden.py                 # all cases: write them, then verify
    python3 tools/make_arch_golden.py --only gpt-oss  # cases whose name starts with "gpt-oss"
    python3 tools/make_arch_golden.py --verify        # check the files that are there; needs numpy only

Weights are drawn at random in GGUF order, rounded to the stored format and loaded, dequantised, into the Hugging Face
transformers class of the architecture, which gives the reference logits (float32, CPU, eager). So an engine that
reads the file and computes in float32 has the same weights to the bit. Seeds are tried until no router choice and no
greedy token is close to a tie.

Verification reads the GGUF file back and runs a second forward pass (arch_golden/forward.py), plain numpy in float64,
that knows nothing of the conversion. It also runs that pass with one rule broken at a time (no sinks, the other RoPE
layout, ...) and insists that the logits move: a rule that the reference outputs cannot see would go untested.

Writing needs torch and transformers 5; tests/golden/arch/README.md names the versions used.
"""
import argparse
import dataclasses
import json
import math
import os

import numpy as np

from arch_golden.forward import Forward
from arch_golden.gguf import (BF16, BLOCK, F16, F32, MXFP4, Q4_0, Q4_K, Q6_K, Q8_0, decode, encode, random_q4_k,
                              random_q6_k, write_gguf)

# ---------------------------------------------------------------- vocabularies

MERGES = ["h e", "t he", "Ġ the", "i n", "a n", "an d", "Ġ and", "r e", "o n", "e r", "Ġ a", "Ġ Ġ"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def bpe_vocabulary(size, pre):
    """Token i < 256 is byte i; then the results of MERGES, the specials, and unused padding."""
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    others = iter(range(256, 512))
    tokens = [chr(b if b in printable else next(others)) for b in range(256)]
    merges = MERGES[:max(0, min(len(MERGES), size - 256 - len(SPECIALS)))]
    tokens += [m.replace(" ", "") for m in merges]
    special = len(tokens)
    tokens += SPECIALS
    types = [1] * special + [3] * len(SPECIALS)
    while len(tokens) < size:
        tokens.append(f"[PAD{len(tokens)}]")
        types.append(5)
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.bos_token_id": special, "tokenizer.ggml.eos_token_id": special,
            "tokenizer.ggml.padding_token_id": special, "tokenizer.ggml.add_bos_token": False}


def spm_vocabulary(size):
    """<unk>, <s>, </s>, 256 byte tokens, pieces."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    types = [2, 3, 3] + [6] * 256
    pieces = ["▁t", "he", "▁the", "in", "an", "▁", "e", "t", "h", "a", "n", "i", "o"]
    tokens += pieces[:size - len(tokens)]
    types += [1] * (len(tokens) - len(types))
    scores = [0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)]
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": False}

# ---------------------------------------------------------------- cases


@dataclasses.dataclass
class Case:
    name: str
    arch: str                    # general.architecture
    hf: str                      # transformers class prefix
    covers: str                  # for README.md
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    inner: int = 96              # of a dense layer, and of an expert unless expert_inner says otherwise
    experts: int = 0
    used: int = 0
    expert_inner: int = 0        # 0: the inner size is stored as feed_forward_length
    shared_inner: int = 0
    vocab: int = 272
    pre: str = "qwen2"           # "spm": SPM instead of byte-level BPE
    tied: bool = False
    eps: float = 1e-6
    rope: dict = dataclasses.field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    bias: bool = False           # attention projections; for llama also the dense feed-forward layer
    norm_topk: bool = True
    window: int = 0
    gate_gain: float = 1.5       # standard deviation of the gate and up projections of a normalised input
    down_gain: float = 1.5
    granite: dict = dataclasses.field(default_factory=dict)  # attention, embedding, residual, logits
    matrix: int = F16            # type of attention and dense feed-forward matrices
    embedding: int = F16         # of token_embd and output
    expert_types: tuple = (BF16, BF16, BF16)  # gate, up, down
    layout: str = ""             # "per-expert", "merged gate_up", "fused qkv"
    extra: dict = dataclasses.field(default_factory=dict)    # further metadata, keys without the architecture
    tokens: int = 48
    same_as: str = ""            # another case with the same weights in another layout: its logits hold
    seed: int = 0                # first seed tried

    @property
    def normal_rope(self):
        """Pairs (2j, 2j+1): such files hold Q and K rows in another order than the Hugging Face checkpoint."""
        return self.arch in ("llama", "granite", "granitemoe")

    @property
    def ff(self):
        return self.expert_inner or self.inner

    @property
    def quantised(self):
        kinds = {self.matrix, self.embedding, *(self.expert_types if self.experts else ())}
        return any(BLOCK[k][0] > 1 for k in kinds)


GRANITE_SCALES = {"attention": 0.17, "embedding": 3.0, "residual": 0.6, "logits": 2.5}
GRANITE = dict(pre="refact", granite=GRANITE_SCALES, down_gain=4.0)
QWEN3MOE = dict(arch="qwen3moe", hf="Qwen3Moe", experts=6, used=2, expert_inner=48)
MIXTRAL = dict(arch="llama", hf="Mixtral", experts=6, used=2, inner=48, pre="spm", eps=1e-5,
               rope={"rope_type": "default", "rope_theta": 1e6})
GPT_OSS = dict(arch="gpt-oss", hf="GptOss", layers=3, pre="gpt-4o", eps=1e-5, bias=True, window=12,
               gate_gain=4.0, down_gain=0.25,
               rope={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                     "truncate": False, "original_max_position_embeddings": 256})
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 256}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}

CASES = [
    Case("llama-mixtral", covers="Mixtral: experts in arch `llama`, inner size from `feed_forward_length`, SPM tokens",
         **MIXTRAL),
    Case("llama-mixtral-per-expert", covers="the same weights, one tensor per expert (`ffn_gate.0.weight`)",
         layout="per-expert", same_as="llama-mixtral", **MIXTRAL),
    Case("qwen3", "qwen3", "Qwen3", "dense Qwen3: per-head QK-norm, head size times heads is not the hidden size; F32",
         head_dim=32, matrix=F32),
    Case("qwen3-fused-qkv", "qwen3", "Qwen3", "the same weights, `attn_qkv` instead of three tensors",
         head_dim=32, matrix=F32, layout="fused qkv", same_as="qwen3"),
    Case("qwen3-yarn", "qwen3", "Qwen3", "YaRN with rounded correction bounds (the usual kind); tied embeddings",
         head_dim=32, tied=True, rope=YARN),
    Case("qwen3moe-tied", covers="Qwen3-MoE: tied embeddings, renormalised top-2 of 6", tied=True, head_dim=32,
         **QWEN3MOE),
    Case("qwen3moe-merged", covers="the same weights, `ffn_gate_up_exps` instead of gate and up", tied=True,
         head_dim=32, layout="merged gate_up", same_as="qwen3moe-tied", **QWEN3MOE),
    Case("qwen3moe-nonorm", covers="norm_topk_prob = false (`expert_weights_norm` false): weights do not sum to 1",
         norm_topk=False, matrix=BF16, embedding=BF16, **QWEN3MOE),
    Case("qwen3moe-odd", covers="odd sizes: hidden 96, inner 40, top-3 of 5, 6/3 heads, 261 tokens; F32 and F16",
         arch="qwen3moe", hf="Qwen3Moe", hidden=96, heads=6, kv_heads=3, head_dim=16, experts=5, used=3,
         expert_inner=40, vocab=261, matrix=F32, embedding=F16, expert_types=(F16, F32, F16)),
    Case("qwen3moe-q8-q4", covers="Q8_0 attention, embedding and output; Q4_0 experts; hidden and inner 64",
         arch="qwen3moe", hf="Qwen3Moe", experts=6, used=2, expert_inner=64, head_dim=32, matrix=Q8_0,
         embedding=Q8_0, expert_types=(Q4_0, Q4_0, Q4_0), tokens=24),
    Case("qwen3moe-q4k-q6k", covers="Q4_K and Q6_K (random blocks), hidden and inner 256, 1 layer, 3 experts",
         arch="qwen3moe", hf="Qwen3Moe", layers=1, hidden=256, heads=8, kv_heads=2, head_dim=32, experts=3, used=2,
         expert_inner=256, matrix=Q4_K, embedding=Q6_K, expert_types=(Q4_K, Q4_K, Q6_K), tokens=24),
    Case("llama", "llama", "Llama", "dense Llama: Q and K rows permuted, rotated in pairs (2j, 2j+1); F32", layers=3,
         matrix=F32, pre="llama-bpe", eps=1e-5),
    Case("llama-rope-freqs", "llama", "Llama", "Llama 3 frequency scaling as `rope_freqs.weight`; tied embeddings",
         tied=True, pre="llama-bpe", eps=1e-5, rope=LLAMA3),
    Case("llama-linear-rope", "llama", "Llama", "linear RoPE scaling, factor 4", pre="llama-bpe", eps=1e-5,
         rope={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, matrix=BF16),
    Case("llama-bias", "llama", "Llama", "biases of attention and feed-forward projections", pre="llama-bpe", eps=1e-5,
         bias=True),
    Case("olmoe", "olmoe", "Olmoe", "OLMoE: QK-norm over the whole projection, weights not renormalised; MHA",
         kv_heads=4, experts=8, used=3, inner=48, norm_topk=False, pre="olmo", eps=1e-5),
    Case("granitemoe", "granitemoe", "GraniteMoe", "Granite MoE: four scalar multipliers; tied embeddings", experts=6,
         used=2, inner=48, tied=True, **GRANITE),
    Case("granitemoe-shared", "granitemoe", "GraniteMoeShared", "with an ungated shared expert; untied", experts=6,
         used=2, inner=48, shared_inner=80, **GRANITE),
    Case("granite", "granite", "Granite", "dense Granite: the multipliers without experts", tied=True,
         **GRANITE),
    Case("gpt-oss-f32", covers="gpt-oss: sinks, window 12 on even layers, YaRN without rounded bounds, biases, clamped "
         "SwiGLU; F32 / BF16", experts=6, used=3, expert_inner=48, inner=48, expert_types=(F32, BF16, BF16),
         matrix=BF16, embedding=BF16, tokens=56, **GPT_OSS),
    Case("gpt-oss-mxfp4", covers="the same with MXFP4 experts, Q8_0 attention and embeddings; explicit window pattern",
         experts=4, used=2, expert_inner=64, inner=64, expert_types=(MXFP4, MXFP4, MXFP4), matrix=Q8_0, embedding=Q8_0,
         extra={"attention.sliding_window_pattern": 2}, tokens=28, seed=1635, **GPT_OSS),
]


def metadata(c):
    a = c.arch
    m = {"general.architecture": a, "general.type": "model", "general.name": f"random {c.name}",
         "general.quantization_version": 2, f"{a}.block_count": c.layers, f"{a}.context_length": 256,
         f"{a}.embedding_length": c.hidden, f"{a}.feed_forward_length": c.inner,
         f"{a}.attention.head_count": c.heads, f"{a}.attention.head_count_kv": c.kv_heads,
         f"{a}.attention.key_length": c.head_dim, f"{a}.attention.value_length": c.head_dim,
         f"{a}.attention.layer_norm_rms_epsilon": c.eps, f"{a}.rope.dimension_count": c.head_dim,
         f"{a}.rope.freq_base": c.rope["rope_theta"], f"{a}.vocab_size": c.vocab}
    kind = c.rope["rope_type"]
    if kind in ("yarn", "linear"):
        m[f"{a}.rope.scaling.type"] = kind
        m[f"{a}.rope.scaling.factor"] = c.rope["factor"]
    if kind == "yarn":
        m[f"{a}.rope.scaling.original_context_length"] = c.rope["original_max_position_embeddings"]
    if c.experts:
        m[f"{a}.expert_count"] = c.experts
        m[f"{a}.expert_used_count"] = c.used
        if c.expert_inner:
            m[f"{a}.expert_feed_forward_length"] = c.expert_inner
        if c.shared_inner:
            m[f"{a}.expert_shared_feed_forward_length"] = c.shared_inner
        if a == "qwen3moe" and not c.norm_topk:
            m[f"{a}.expert_weights_norm"] = False
    if c.granite:
        m[f"{a}.attention.scale"] = c.granite["attention"]
        for k in ("embedding", "residual"):
            m[f"{a}.{k}_scale"] = c.granite[k]
        m[f"{a}.logit_scale"] = c.granite["logits"]
    if c.window:
        m[f"{a}.attention.sliding_window"] = c.window
    m.update({f"{a}.{k}": v for k, v in c.extra.items()})
    m.update(spm_vocabulary(c.vocab) if c.pre == "spm" else bpe_vocabulary(c.vocab, c.pre))
    return m


class Weights:
    """Draws tensors in GGUF order; `value` has what a reader of the file gets."""

    def __init__(self, case, seed):
        self.case, self.rng = case, np.random.default_rng([seed, 20240917])
        self.stored, self.value = {}, {}

    def add(self, name, shape, std, kind, mean=0.0):
        """A matrix or stack of matrices (out, in), or a vector."""
        if kind in (Q4_K, Q6_K):
            make = random_q4_k if kind == Q4_K else random_q6_k
            raw = make(self.rng, math.prod(shape) // 256, std).tobytes()
        else:
            raw = encode((self.rng.standard_normal(shape) * std + mean).astype(np.float32), kind)
        self.stored[name] = (raw, kind, shape)
        self.value[name] = decode(raw, kind, shape)

    def matrix(self, name, shape, gain, kind=None):
        self.add(name + ".weight", shape, gain / math.sqrt(shape[-1]), self.case.matrix if kind is None else kind)

    def norm(self, name, size):
        v = self.rng.uniform(0.5, 1.5, size).astype(np.float32)
        self.stored[name + ".weight"] = (v.tobytes(), F32, (size,))
        self.value[name + ".weight"] = v

    def bias(self, name, shape, std=0.3):
        self.add(name + ".bias", shape, std, F32)

    def join(self, new, parts, axis=0):
        """Replaces stored tensors of one type by their concatenation along a row axis; `value` keeps the parts."""
        kind = self.stored[parts[0]][1]
        blocks = [np.frombuffer(self.stored[p][0], np.uint8).reshape(*self.stored[p][2][:-1], -1) for p in parts]
        shapes = [self.stored.pop(p)[2] for p in parts]
        assert all(BLOCK[kind][0] == 1 or s[-1] % BLOCK[kind][0] == 0 for s in shapes)
        shape = list(shapes[0])
        shape[axis] = sum(s[axis] for s in shapes)
        self.stored[new] = (np.concatenate(blocks, axis).tobytes(), kind, tuple(shape))

    def split(self, name, pattern):
        """Replaces a stored stack by one tensor per expert."""
        raw, kind, shape = self.stored.pop(name)
        size = len(raw) // shape[0]
        for e in range(shape[0]):
            self.stored[pattern.format(e)] = (raw[e * size:(e + 1) * size], kind, shape[1:])


def llama3_factors(rope, head_dim):
    wave = 2 * math.pi * rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    old, low, high = (rope[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    s = (old / wave - low) / (high - low)
    mixed = 1 / ((1 - s) / rope["factor"] + s)
    return np.where(wave < old / high, 1, np.where(wave > old / low, rope["factor"], mixed)).astype(np.float32)


def draw_weights(c, seed):
    w = Weights(c, seed)
    q, kv, gpt = c.heads * c.head_dim, c.kv_heads * c.head_dim, c.arch == "gpt-oss"
    # Granite's multipliers are undone, else a token's own embedding drowns what the layers add. A tied embedding
    # serves as output too: 2 / sqrt(hidden) spreads the logits.
    spread = 2 * c.granite.get("logits", 1)
    std = spread / math.sqrt(c.hidden) if c.tied else 1 / c.granite.get("embedding", 1)
    w.add("token_embd.weight", (c.vocab, c.hidden), std, c.embedding)
    if c.rope["rope_type"] == "llama3":
        v = llama3_factors(c.rope, c.head_dim)
        w.stored["rope_freqs.weight"] = (v.tobytes(), F32, v.shape)
    for i in range(c.layers):
        b = f"blk.{i}."
        w.norm(b + "attn_norm", c.hidden)
        for x, rows, gain in (("q", q, 1.5), ("k", kv, 1.5), ("v", kv, 1.0)):
            w.matrix(b + "attn_" + x, (rows, c.hidden), gain)
            if c.bias:
                w.bias(b + "attn_" + x, (rows,))
        if c.arch in ("qwen3", "qwen3moe", "olmoe"):
            w.norm(b + "attn_q_norm", q if c.arch == "olmoe" else c.head_dim)
            w.norm(b + "attn_k_norm", kv if c.arch == "olmoe" else c.head_dim)
        w.matrix(b + "attn_output", (c.hidden, q), 1.0)
        if c.bias:
            w.bias(b + "attn_output", (c.hidden,))
        if gpt:
            w.add(b + "attn_sinks.weight", (c.heads,), 1.0, F32, mean=1.0)
        w.norm(b + ("post_attention_norm" if gpt else "ffn_norm"), c.hidden)
        if c.experts:
            w.matrix(b + "ffn_gate_inp", (c.experts, c.hidden), 2.0, F32)
            if gpt:
                w.bias(b + "ffn_gate_inp", (c.experts,))
        for x, kind in zip(("gate", "up", "down"), c.expert_types):
            rows, cols = (c.hidden, c.ff) if x == "down" else (c.ff, c.hidden)
            gain = c.down_gain if x == "down" else c.gate_gain
            if not c.experts:
                w.matrix(b + "ffn_" + x, (rows, cols), gain)
                if c.bias:
                    w.bias(b + "ffn_" + x, (rows,))
                continue
            w.matrix(b + f"ffn_{x}_exps", (c.experts, rows, cols), gain, kind)
            if gpt:
                w.bias(b + f"ffn_{x}_exps", (c.experts, rows))
            if c.shared_inner:
                shape = (c.hidden, c.shared_inner) if x == "down" else (c.shared_inner, c.hidden)
                w.matrix(b + f"ffn_{x}_shexp", shape, gain)
    w.norm("output_norm", c.hidden)
    if not c.tied:
        w.matrix("output", (c.vocab, c.hidden), spread, c.embedding)
    for i in range(c.layers):
        b = f"blk.{i}."
        if c.layout == "per-expert":
            for x in ("gate", "up", "down"):
                w.split(f"{b}ffn_{x}_exps.weight", f"{b}ffn_{x}.{{}}.weight")
        if c.layout == "merged gate_up":
            w.join(b + "ffn_gate_up_exps.weight", [b + "ffn_gate_exps.weight", b + "ffn_up_exps.weight"], axis=1)
        if c.layout == "fused qkv":
            w.join(b + "attn_qkv.weight", [b + f"attn_{x}.weight" for x in "qkv"])
    return w

# ---------------------------------------------------------------- Hugging Face side


def hf_config(c, transformers):
    kw = dict(vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.inner, num_hidden_layers=c.layers,
              num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, rms_norm_eps=c.eps, rope_parameters=c.rope,
              max_position_embeddings=256, tie_word_embeddings=c.tied, bos_token_id=1, eos_token_id=2,
              pad_token_id=None)
    if c.hf in ("Qwen3", "Qwen3Moe", "Llama", "Mixtral", "GptOss"):
        kw["head_dim"] = c.head_dim
    elif c.head_dim * c.heads != c.hidden:
        raise SystemExit(f"{c.name}: {c.hf} has no head_dim")
    if c.hf in ("Qwen3Moe", "Olmoe"):
        kw.update(num_experts=c.experts, num_experts_per_tok=c.used, norm_topk_prob=c.norm_topk)
    elif c.experts:
        kw.update(num_local_experts=c.experts, num_experts_per_tok=c.used)
    if c.hf == "Qwen3Moe":
        kw.update(moe_intermediate_size=c.expert_inner, decoder_sparse_step=1, mlp_only_layers=[])
    if c.hf == "GptOss":
        kw.update(sliding_window=c.window)
    if c.hf == "Llama":
        kw.update(attention_bias=c.bias, mlp_bias=c.bias)
    if c.granite:
        kw.update({f"{k}_multiplier": c.granite[k] for k in ("attention", "embedding", "residual")},
                  logits_scaling=c.granite["logits"])
    if c.shared_inner:
        kw.update(shared_intermediate_size=c.shared_inner)
    return getattr(transformers, c.hf + "Config")(**kw)


def hf_state(c, v):
    """GGUF values under the names, shapes and row orders of the Hugging Face module."""
    def unpermute(x, heads):
        return x.reshape(heads, c.head_dim // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)

    s = {"model.embed_tokens.weight": v["token_embd.weight"], "model.norm.weight": v["output_norm.weight"],
         "lm_head.weight": v["token_embd.weight"] if c.tied else v["output.weight"]}
    granite, gpt = c.arch.startswith("granite"), c.arch == "gpt-oss"
    for i in range(c.layers):
        b, p = f"blk.{i}.", f"model.layers.{i}."
        mlp = p + ("block_sparse_moe." if granite and c.experts else "mlp.")
        s[p + "input_layernorm.weight"] = v[b + "attn_norm.weight"]
        s[p + "post_attention_layernorm.weight"] = v[b + ("post_attention_norm" if gpt else "ffn_norm") + ".weight"]
        for x, part in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("output", "o_proj")):
            for suffix in (".weight", ".bias") if c.bias else (".weight",):
                t = v[b + "attn_" + x + suffix]
                if c.normal_rope and x in "qk":
                    t = unpermute(t, c.heads if x == "q" else c.kv_heads)
                s[p + "self_attn." + part + suffix] = t
        for x in "qk":
            if b + f"attn_{x}_norm.weight" in v:
                s[p + f"self_attn.{x}_norm.weight"] = v[b + f"attn_{x}_norm.weight"]
        if gpt:
            s[p + "self_attn.sinks"] = v[b + "attn_sinks.weight"]
        if not c.experts:
            for x in ("gate", "up", "down"):
                for suffix in (".weight", ".bias") if c.bias else (".weight",):
                    s[mlp + x + "_proj" + suffix] = v[b + "ffn_" + x + suffix]
            continue
        gate, up, down = (v[b + f"ffn_{x}_exps.weight"] for x in ("gate", "up", "down"))
        s[mlp + ("router" if granite or gpt else "gate") + ".weight"] = v[b + "ffn_gate_inp.weight"]
        if gpt:      # matrices are (in, out) there, and gate and up take turns
            s[mlp + "router.bias"] = v[b + "ffn_gate_inp.bias"]
            s[mlp + "experts.gate_up_proj"] = np.stack((gate, up), 2).reshape(c.experts, -1, c.hidden).swapaxes(1, 2)
            s[mlp + "experts.gate_up_proj_bias"] = np.stack(
                (v[b + "ffn_gate_exps.bias"], v[b + "ffn_up_exps.bias"]), 2).reshape(c.experts, -1)
            s[mlp + "experts.down_proj"] = down.swapaxes(1, 2)
            s[mlp + "experts.down_proj_bias"] = v[b + "ffn_down_exps.bias"]
        else:
            s[mlp + "experts.gate_up_proj"] = np.concatenate((gate, up), 1)
            s[mlp + "experts.down_proj"] = down
        if c.shared_inner:
            s[p + "shared_mlp.input_linear.weight"] = np.concatenate(
                (v[b + "ffn_gate_shexp.weight"], v[b + "ffn_up_shexp.weight"]))
            s[p + "shared_mlp.output_linear.weight"] = v[b + "ffn_down_shexp.weight"]
    return s


class Reference:
    """The transformers model of a case, with a record of what its routers did in the last forward pass."""

    def __init__(self, case, values):
        import torch
        import transformers
        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        self.torch, self.case, self.routed = torch, case, []
        config = hf_config(case, transformers)
        config._attn_implementation = "eager"
        config._experts_implementation = "eager"
        self.model = getattr(transformers, case.hf + "ForCausalLM")(config).float().eval()
        state = {k: torch.from_numpy(np.ascontiguousarray(x)).clone() for k, x in hf_state(case, values).items()}
        self.model.load_state_dict(state, strict=True)
        assert self.model.config._attn_implementation == "eager"
        for name, module in self.model.named_modules():
            if case.experts and name.endswith((".gate", ".router")):
                module.register_forward_hook(self.watch)

    def watch(self, module, args, output):
        logits, weights, chosen = output
        self.routed.append([t.detach().numpy().copy() for t in (logits, weights, chosen)])

    def __call__(self, ids):
        self.routed = []
        with self.torch.no_grad():
            return self.model(self.torch.tensor([ids]), use_cache=False).logits[0].float().numpy().copy()

    def gaps(self):
        """Router logit of the last chosen expert minus the best one not chosen, [layer][token]."""
        top = [np.sort(r[0], -1)[:, ::-1] for r in self.routed]
        return [t[:, self.case.used - 1] - t[:, self.case.used] for t in top]


def make(c, out, tries=3000):
    import torch
    import transformers
    # With block-quantised weights engines round activations too (8 bits), so they need more room.
    need_gap, need_margin = (0.03, 0.1) if c.quantised else (0.004, 0.02)
    path = os.path.join(out, c.name + ".gguf")
    for seed in range(c.seed, c.seed + tries):
        w = draw_weights(c, seed)
        ids = np.random.default_rng([seed, 7]).integers(0, c.vocab, c.tokens).tolist()
        reference = Reference(c, w.value)
        logits = reference(ids)
        if c.experts and min(g.min() for g in reference.gaps()) < need_gap:
            continue
        routed, gaps = reference.routed, reference.gaps()
        greedy, margins = [], []
        for _ in range(16):
            last = np.sort(reference(ids + greedy)[-1])[::-1]
            margins.append(float(last[0] - last[1]))
            if margins[-1] < need_margin:
                break
            greedy.append(int(reference(ids + greedy)[-1].argmax()))
        if len(greedy) == 16 and len(set(greedy)) > 4:
            reference(ids + greedy)
            if c.experts and min(g.min() for g in reference.gaps()) < need_gap:
                continue
            write_gguf(path, metadata(c), w.stored)
            order = [np.argsort(-r[1], -1, kind="stable") for r in routed]
            experts = [np.take_along_axis(r[2], o, -1) for r, o in zip(routed, order)]
            if not c.quantised or agrees(Forward(path, int8=True), ids, greedy, experts):
                break
    else:
        raise SystemExit(f"{c.name}: no seed keeps clear of ties")
    if not c.same_as:
        np.save(os.path.join(out, c.name + ".npy"), logits.astype(np.float32))
    num = lambda x, d: [num(v, d) for v in x] if np.ndim(x) else round(float(x), d)
    result = {
        "name": c.name, "architecture": c.arch, "covers": c.covers, "gguf": c.name + ".gguf",
        "logits": (c.same_as or c.name) + ".npy", "block_quantised": c.quantised,
        "reference": {"class": c.hf + "ForCausalLM", "transformers": transformers.__version__,
                      "torch": torch.__version__.split("+")[0], "seed": seed},
        "config": {k: getattr(c, k) for k in (
            "layers", "hidden", "heads", "kv_heads", "head_dim", "ff", "vocab", "tied", "eps", "rope", "experts",
            "used", "norm_topk", "shared_inner", "window", "granite", "layout")},
        "ids": ids, "greedy_ids": greedy, "greedy_margin": num(margins, 4)}
    if c.experts:
        result["experts"] = [e.tolist() for e in experts]
        result["expert_weights"] = [num(np.take_along_axis(r[1], o, -1), 5) for r, o in zip(routed, order)]
        result["router_gap"] = [num(g, 4) for g in gaps]
    with open(os.path.join(out, c.name + ".json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in result.items()) + "\n}\n")
    print(f"{c.name}: seed {seed}, {os.path.getsize(path)} bytes, logits' standard "
          f"deviation {logits.std():.2f}, {len(set(greedy))} different greedy tokens, margin {min(margins):.3f}"
          + (f", router gap {min(g.min() for g in gaps):.4f}" if c.experts else ""), flush=True)

# ---------------------------------------------------------------- verification


def rules(c):
    """What a case must be able to catch."""
    r = ["rope", "rope layout", "head grouping"] if c.kv_heads != c.heads else ["rope", "rope layout"]
    r += {"yarn": ["yarn rounding", "yarn magnitude"], "linear": ["rope.scaling.type"], "llama3": ["rope_freqs"],
          "default": []}[c.rope["rope_type"]]
    if c.rope["rope_theta"] != 10000:
        r.append("rope.freq_base")
    if c.arch.startswith("qwen3"):
        r.append("qk norm")
    if c.bias:
        r.append("bias")
    if c.granite:
        r += ["attention scale", "embedding_scale", "residual_scale", "logit_scale"]
    if c.shared_inner:
        r.append("shared expert")
    if c.arch == "gpt-oss":
        r += ["sinks", "window parity", "window by one", "attention.sliding_window", "expert bias", "clamp"]
    elif c.experts:
        r.append("weight normalisation")
    if c.experts and c.layout != "per-expert":
        r.append("gate and up swapped")
    return r


def agrees(forward, ids, greedy, experts):
    """Whether a pass gives the same greedy continuation and the same sets of experts for the prompt."""
    logits, n = forward(ids + greedy), len(ids)
    return (logits[n - 1:-1].argmax(-1).tolist() == greedy
            and all((np.sort(a[:n]) == np.sort(b)).all() for a, b in zip(forward.chosen, experts)))


def verify(c, out):
    path = os.path.join(out, c.name + ".gguf")
    with open(os.path.join(out, c.name + ".json")) as f:
        golden = json.load(f)
    want = np.load(os.path.join(out, golden["logits"])).astype(np.float64)
    assert want.shape == (len(golden["ids"]), c.vocab)
    distance = lambda got: np.linalg.norm(got - want) / np.linalg.norm(want)
    forward = Forward(path)
    error = distance(forward(golden["ids"]))
    if not error < 1e-5:
        raise SystemExit(f"{c.name}: the two forward passes differ by {error:.2e}")
    if c.experts:
        if [x.tolist() for x in forward.chosen] != golden["experts"]:
            raise SystemExit(f"{c.name}: the two forward passes choose different experts")
        off = max(np.abs(a - np.array(b)).max() for a, b in zip(forward.weights, golden["expert_weights"]))
        if off > 2e-5:
            raise SystemExit(f"{c.name}: expert weights differ by {off:.2e}")
    experts = golden.get("experts", [])
    if not agrees(forward, golden["ids"], golden["greedy_ids"], experts):
        raise SystemExit(f"{c.name}: greedy continuations differ")
    print(f"{c.name}: relative difference {error:.1e}", end="")
    if c.quantised:
        rounded = Forward(path, int8=True)
        print(f", {distance(rounded(golden['ids'])):.2g} with 8-bit activations", end="")
        if not agrees(rounded, golden["ids"], golden["greedy_ids"], experts):
            raise SystemExit(f"; {c.name}: other experts or tokens with 8-bit activations")
    moved = {rule: distance(Forward(path, rule)(golden["ids"])) for rule in rules(c)}
    print("; broken rules move the logits by "
          + ", ".join(f"{rule} {d:.2g}" for rule, d in moved.items()), flush=True)
    blind = [rule for rule, d in moved.items() if not d > 0.01]
    if blind:
        raise SystemExit(f"{c.name}: cannot see {blind}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "..", "tests", "golden", "arch"))
    parser.add_argument("--only", default="", help="prefix of the names of the cases to make")
    parser.add_argument("--verify", action="store_true", help="only check the files that are there")
    a = parser.parse_args()
    os.makedirs(a.out, exist_ok=True)
    cases = [c for c in CASES if c.name.startswith(a.only)]
    if not cases:
        raise SystemExit(f"no case starts with {a.only!r}")
    for c in cases:
        if not a.verify:
            make(c, a.out)
        verify(c, a.out)


if __name__ == "__main__":
    main()
