"""A forward pass from a GGUF file alone: plain numpy in float64, written for reading, not for speed."""
import math

import numpy as np

from .gguf import BLOCK, F32, read_gguf


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


class Forward:
    """What a GGUF file means, from the file alone. `broken` names one rule to violate. With `int8`, activations are
    rounded to 8 bits in front of block-quantised weights, as integer kernels do."""

    def __init__(self, path, broken="", int8=False):
        self.int8 = int8
        self.meta, tensors, self.kinds = read_gguf(path)
        self.t = {k: v.astype(np.float64) for k, v in tensors.items()}
        self.broken, self.arch = broken, self.meta["general.architecture"]
        self.heads, self.kv_heads = self.key("attention.head_count"), self.key("attention.head_count_kv")
        self.hd, self.eps = self.key("attention.key_length"), self.key("attention.layer_norm_rms_epsilon")
        self.scale = self.key("attention.scale", 1 / math.sqrt(self.hd))
        if broken == "attention scale":
            self.scale = 1 / math.sqrt(self.hd)
        self.gpt, self.normal = self.arch == "gpt-oss", self.arch in ("llama", "granite", "granitemoe")
        if broken == "rope layout":
            self.normal = not self.normal

    def key(self, suffix, default=None):
        value = self.meta.get(f"{self.arch}.{suffix}", default)
        return default if self.broken == suffix else value

    def rounded(self, name, x):
        """Q8_0 (blocks of 32) or, for K formats, Q8_K (blocks of 256)."""
        size = BLOCK[self.kinds.get(name, F32)][0]
        if not self.int8 or size == 1:
            return x
        b = x.reshape(-1, size)
        d = np.maximum(np.abs(b).max(1, keepdims=True) / 127, 1e-30)
        return (np.rint(b / d) * d).reshape(x.shape)

    def linear(self, name, x):
        y = self.rounded(name + ".weight", x) @ self.t[name + ".weight"].T
        return y + self.t[name + ".bias"] if name + ".bias" in self.t and self.broken != "bias" else y

    def angles(self, n):
        """(frequency per pair, factor of cos and sin) times positions."""
        d, base = self.key("rope.dimension_count"), self.key("rope.freq_base", 10000.0)
        j = np.arange(d // 2)
        freq, magnitude = base ** (-2.0 * j / d), 1.0
        if "rope_freqs.weight" in self.t and self.broken != "rope_freqs":
            freq = freq / self.t["rope_freqs.weight"]
        factor, kind = self.key("rope.scaling.factor", 1.0), self.key("rope.scaling.type", "none")
        if kind == "linear":
            freq = freq / factor
        if kind == "yarn":
            old = self.key("rope.scaling.original_context_length")
            low, high = (d * math.log(old / (b * 2 * math.pi)) / (2 * math.log(base)) for b in (32, 1))
            if self.gpt == (self.broken == "yarn rounding"):     # gpt-oss alone keeps the fractions
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, d - 1)
            r = 1 - np.clip((j - low) / max(0.001, high - low), 0, 1)
            freq = freq * r + freq / factor * (1 - r)
            if self.broken != "yarn magnitude":
                magnitude = 1 + 0.1 * math.log(factor)
        a = np.arange(n)[:, None] * freq
        return np.cos(a) * magnitude, np.sin(a) * magnitude

    def rotate(self, x, cos, sin):
        """x: [token, head, hd]"""
        half = self.hd // 2
        cos, sin = cos[:, None], sin[:, None]
        a, b = (x[..., 0::2], x[..., 1::2]) if self.normal else (x[..., :half], x[..., half:])
        ra, rb = a * cos - b * sin, a * sin + b * cos
        return np.stack((ra, rb), -1).reshape(x.shape) if self.normal else np.concatenate((ra, rb), -1)

    def attention(self, b, layer, x):
        n, h, g, hd = len(x), self.heads, self.kv_heads, self.hd
        if b + "attn_qkv.weight" in self.t:
            q, k, v = np.split(self.linear(b + "attn_qkv", x), [h * hd, (h + g) * hd], -1)
        else:
            q, k, v = (self.linear(b + "attn_" + s, x) for s in "qkv")
        whole = self.arch == "olmoe"
        if whole:
            q, k = (rms(y, self.t[f"{b}attn_{s}_norm.weight"], self.eps) for y, s in ((q, "q"), (k, "k")))
        q, k, v = q.reshape(n, h, hd), k.reshape(n, g, hd), v.reshape(n, g, hd)
        if b + "attn_q_norm.weight" in self.t and not whole and self.broken != "qk norm":
            q, k = (rms(y, self.t[f"{b}attn_{s}_norm.weight"], self.eps) for y, s in ((q, "q"), (k, "k")))
        if self.broken != "rope":
            cos, sin = self.angles(n)
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        group = np.arange(h) // (h // g) if self.broken != "head grouping" else np.arange(h) % g
        scores = np.einsum("ihd,jhd->hij", q, k[:, group]) * self.scale
        i, j = np.arange(n)[:, None], np.arange(n)[None]
        visible = j <= i
        if self.gpt and layer % self.key("attention.sliding_window_pattern", 2) == (self.broken == "window parity"):
            visible &= i - j < self.key("attention.sliding_window", n + 1) + (self.broken == "window by one")
        scores = np.where(visible, scores, -np.inf)
        if self.gpt and self.broken != "sinks":
            sink = np.broadcast_to(self.t[b + "attn_sinks.weight"][:, None, None], (h, n, 1))
            p = softmax(np.concatenate((scores, sink), -1))[..., :-1]
        else:
            p = softmax(scores)
        return self.linear(b + "attn_output", np.einsum("hij,jhd->ihd", p, v[:, group]).reshape(n, h * hd))

    def expert_matrix(self, b, x, e):
        if f"{b}ffn_{x}.{e}.weight" in self.t:
            return self.t[f"{b}ffn_{x}.{e}.weight"]
        if b + "ffn_gate_up_exps.weight" in self.t and x != "down":
            both = self.t[b + "ffn_gate_up_exps.weight"][e]
            half = len(both) // 2
            first = (x == "gate") != (self.broken == "gate and up swapped")
            return both[:half] if first else both[half:]
        other = {"gate": "up", "up": "gate", "down": "down"}[x] if self.broken == "gate and up swapped" else x
        return self.t[f"{b}ffn_{other}_exps.weight"][e]

    def experts(self, b, x):
        logits = self.linear(b + "ffn_gate_inp", x)
        used = self.key("expert_used_count")
        chosen = np.argsort(-logits, -1, kind="stable")[:, :used]
        p = softmax(logits)
        if self.gpt:
            w = softmax(np.take_along_axis(logits, chosen, -1))
        else:
            w = np.take_along_axis(p, chosen, -1)
        default = self.arch not in ("olmoe", "gpt-oss")
        norm = self.meta.get(f"{self.arch}.expert_weights_norm", default)
        if norm != (self.broken == "weight normalisation"):
            w = w / w.sum(-1, keepdims=True)
        y = np.zeros_like(x)
        for e in range(self.key("expert_count")):
            token, place = np.nonzero(chosen == e)
            if not len(token):
                continue
            gate, up = (self.rounded(f"{b}ffn_{s}_exps.weight", x[token]) @ self.expert_matrix(b, s, e).T
                        for s in ("gate", "up"))
            biased = b + "ffn_down_exps.bias" in self.t and self.broken != "expert bias"
            if biased:
                gate, up = gate + self.t[b + "ffn_gate_exps.bias"][e], up + self.t[b + "ffn_up_exps.bias"][e]
            if self.gpt:
                limit = np.inf if self.broken == "clamp" else 7.0
                gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
                a = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
            else:
                a = silu(gate) * up
            d = self.rounded(b + "ffn_down_exps.weight", a) @ self.expert_matrix(b, "down", e).T
            if biased:
                d = d + self.t[b + "ffn_down_exps.bias"][e]
            y[token] += w[token, place][:, None] * d
        if b + "ffn_gate_shexp.weight" in self.t and self.broken != "shared expert":
            y += self.linear(b + "ffn_down_shexp", silu(self.linear(b + "ffn_gate_shexp", x))
                             * self.linear(b + "ffn_up_shexp", x))
        self.chosen.append(chosen)
        self.weights.append(w)
        return y

    def __call__(self, ids):
        self.chosen, self.weights = [], []
        x = self.t["token_embd.weight"][ids] * self.key("embedding_scale", 1.0)
        residual = self.key("residual_scale", 1.0)
        for i in range(self.key("block_count")):
            b = f"blk.{i}."
            x = x + residual * self.attention(b, i, rms(x, self.t[b + "attn_norm.weight"], self.eps))
            h = rms(x, self.t[b + ("post_attention_norm" if self.gpt else "ffn_norm") + ".weight"], self.eps)
            if self.key("expert_count", 0):
                y = self.experts(b, h)
            else:
                y = self.linear(b + "ffn_down", silu(self.linear(b + "ffn_gate", h)) * self.linear(b + "ffn_up", h))
            x = x + residual * y
        x = rms(x, self.t["output_norm.weight"], self.eps)
        name = "output" if "output.weight" in self.t else "token_embd"
        return self.linear(name, x) / self.key("logit_scale", 1.0)
