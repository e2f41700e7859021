"""Weight formats and GGUF v3 files, numpy only. Encoders for the simple formats; K formats are drawn as random blocks."""
import math
import struct

import numpy as np

ALIGN = 32
F32, F16, Q4_0, Q8_0, Q4_K, Q6_K, BF16, MXFP4 = 0, 1, 2, 8, 12, 14, 30, 39
BLOCK = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210), BF16: (1, 2),
         MXFP4: (32, 17)}  # elements, bytes
FP4_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)

# ---------------------------------------------------------------- number formats


def halves(x):
    return np.ascontiguousarray(x, np.float32).astype(np.float16).reshape(-1, 1).view(np.uint8)


def encode_q4_0(x):
    b = x.reshape(-1, 32)
    d = b[np.arange(len(b)), np.abs(b).argmax(1)] / np.float32(-8)
    inv = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    q = np.minimum(15, np.trunc(b * inv[:, None] + np.float32(8.5))).astype(np.uint8)
    return np.concatenate((halves(d), q[:, :16] | (q[:, 16:] << 4)), 1)


def encode_q8_0(x):
    b = x.reshape(-1, 32)
    d = np.abs(b).max(1) / np.float32(127)
    y = b * np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)[:, None]
    q = (np.sign(y) * np.floor(np.abs(y) + np.float32(0.5))).astype(np.int8)
    return np.concatenate((halves(d), q.view(np.uint8)), 1)


def encode_mxfp4(x):
    b = x.reshape(-1, 32)
    top = np.abs(b).max(1)
    e = np.where(top > 0, np.floor(np.log2(np.maximum(top, 1e-30))) + 125, 0).astype(np.uint8)
    scale = np.ldexp(np.float32(1), e.astype(np.int32) - 128)
    q = np.abs(b[:, :, None] - FP4_DOUBLED * scale[:, None, None]).argmin(2).astype(np.uint8)
    return np.concatenate((e[:, None], q[:, :16] | (q[:, 16:] << 4)), 1)


def random_q4_k(rng, blocks, std):
    """Random blocks: sub-block values are d * (scale * nibble) - dmin * minimum, centred on zero by dmin = 7.5 d."""
    d = np.full(blocks, std / (40 * 4.61), np.float32)
    sc = rng.integers(16, 64, (blocks, 8)).astype(np.uint8)
    mn = np.clip(sc.astype(int) + rng.integers(-4, 5, sc.shape), 0, 63).astype(np.uint8)
    s = np.concatenate((sc[:, :4] | ((sc[:, 4:] >> 4) << 6), mn[:, :4] | ((mn[:, 4:] >> 4) << 6),
                        (sc[:, 4:] & 15) | ((mn[:, 4:] & 15) << 4)), 1)
    q = rng.integers(0, 256, (blocks, 128)).astype(np.uint8)
    return np.concatenate((halves(d), halves(d * 7.5), s, q), 1)


def random_q6_k(rng, blocks, std):
    codes = rng.integers(0, 256, (blocks, 192)).astype(np.uint8)
    sc = (rng.integers(16, 128, (blocks, 16)) * rng.choice([-1, 1], (blocks, 16))).astype(np.int8)
    d = np.full(blocks, std / (72 * 18.5), np.float32)
    return np.concatenate((codes, sc.view(np.uint8), halves(d)), 1)


def encode(x, kind):
    x = np.ascontiguousarray(x, np.float32)
    if kind == F32:
        return x.tobytes()
    if kind == F16:
        return x.astype(np.float16).tobytes()
    if kind == BF16:
        u = x.view(np.uint32)
        return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    return {Q4_0: encode_q4_0, Q8_0: encode_q8_0, MXFP4: encode_mxfp4}[kind](x).tobytes()


def f16_column(b):
    return np.ascontiguousarray(b).view(np.float16).astype(np.float32)


def decode_q4_k(b):
    s = b[:, 4:16].astype(int)
    sc = np.concatenate((s[:, :4] & 63, (s[:, 8:] & 15) | (s[:, :4] >> 6) << 4), 1)
    mn = np.concatenate((s[:, 4:8] & 63, (s[:, 8:] >> 4) | (s[:, 4:8] >> 6) << 4), 1)
    q = b[:, 16:].reshape(-1, 4, 32)
    nib = np.stack((q & 15, q >> 4), 2).reshape(-1, 8, 32).astype(np.float32)
    d, dmin = f16_column(b[:, :2]), f16_column(b[:, 2:4])
    return (d * sc.astype(np.float32))[:, :, None] * nib - (dmin * mn.astype(np.float32))[:, :, None]


def decode_q6_k(b):
    ql = b[:, :128].reshape(-1, 2, 2, 32).astype(int)          # half n, p % 2, l
    qh = b[:, 128:192].reshape(-1, 2, 1, 32).astype(int)
    low = np.concatenate((ql & 15, ql >> 4), 2)                # half n, p, l
    code = (low | ((qh >> np.array([0, 2, 4, 6]).reshape(1, 1, 4, 1)) & 3) << 4) - 32
    sc = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32)
    return ((f16_column(b[:, 208:]) * sc)[:, :, None] * code.reshape(-1, 16, 16).astype(np.float32))


def decode(raw, kind, shape):
    raw = np.frombuffer(raw, np.uint8)
    if kind == F32:
        return raw.view(np.float32).reshape(shape).copy()
    if kind == F16:
        return raw.view(np.float16).astype(np.float32).reshape(shape)
    if kind == BF16:
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    b = raw.reshape(-1, BLOCK[kind][1])
    if kind == Q4_K:
        return decode_q4_k(b).reshape(shape)
    if kind == Q6_K:
        return decode_q6_k(b).reshape(shape)
    if kind == Q8_0:
        return (np.ascontiguousarray(b[:, 2:]).view(np.int8).astype(np.float32) * f16_column(b[:, :2])).reshape(shape)
    head = BLOCK[kind][1] - 16
    q = np.concatenate((b[:, head:] & 15, b[:, head:] >> 4), 1)
    if kind == MXFP4:
        return (FP4_DOUBLED[q] * np.ldexp(np.float32(1), b[:, :1].astype(np.int32) - 128)).reshape(shape)
    return ((q.astype(np.float32) - np.float32(8)) * f16_column(b[:, :2])).reshape(shape)

# ---------------------------------------------------------------- GGUF


U32, I32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SCALAR = {0: "B", 1: "b", 2: "H", 3: "h", U32: "I", I32: "i", FLOAT32: "f", BOOL: "?", 10: "Q", 11: "q", 12: "d"}


def pack_string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def pack_kv(key, value):
    """Python's type chooses the stored one: bool, int (u32), float (f32), str, lists of str, int (i32) or float."""
    def kind_of(v, integer):
        return (BOOL if isinstance(v, bool) else integer if isinstance(v, int) else FLOAT32 if isinstance(v, float)
                else STRING)

    def item(v, kind):
        return pack_string(v) if kind == STRING else struct.pack("<" + SCALAR[kind], v)

    if isinstance(value, list):
        kind = kind_of(value[0], I32) if value else STRING
        return pack_string(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(item(v, kind) for v in value)
    kind = kind_of(value, U32)
    return pack_string(key) + struct.pack("<I", kind) + item(value, kind)


def write_gguf(path, meta, tensors):
    """tensors: {name: (bytes, type, row-major shape)}; GGUF's dimensions are the shape reversed."""
    infos, data = [], b""
    for name, (raw, kind, shape) in tensors.items():
        assert shape[-1] % BLOCK[kind][0] == 0 and len(raw) * BLOCK[kind][0] == math.prod(shape) * BLOCK[kind][1], name
        infos.append(pack_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data)))
        data += raw + b"\0" * (-len(raw) % ALIGN)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(meta))
    head += b"".join(pack_kv(k, v) for k, v in meta.items()) + b"".join(infos)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGN) + data)


def read_gguf(path):
    """(metadata, {name: float32 array}, {name: type})"""
    data, at = open(path, "rb").read(), 4

    def take(fmt):
        nonlocal at
        v = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return v[0] if len(v) == 1 else v

    def string():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode("utf-8")

    def value(kind):
        if kind == STRING:
            return string()
        if kind == ARRAY:
            item, n = take("IQ")
            return [value(item) for _ in range(n)]
        return take(SCALAR[kind])

    assert data[:4] == b"GGUF", path
    version, n_tensors, n_kv = take("IQQ")
    assert version == 3, path
    meta = {}
    for _ in range(n_kv):
        key = string()
        meta[key] = value(take("I"))
    infos = []
    for _ in range(n_tensors):
        name = string()
        dims = [take("Q") for _ in range(take("I"))]
        infos.append((name, dims[::-1], take("I"), take("Q")))
    start = at + (-at % ALIGN)
    tensors, kinds = {}, {}
    for name, shape, kind, offset in infos:
        size = math.prod(shape) // BLOCK[kind][0] * BLOCK[kind][1]
        tensors[name] = decode(data[start + offset:start + offset + size], kind, shape)
        kinds[name] = kind
    return meta, tensors, kinds
