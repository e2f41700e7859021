// How a warp reads a weight tile, by format: Load brings a chunk's bytes of a lane into registers, Expand makes the mma
// fragments of one group of 32 columns. Codes enter as exact bf16 integers; scales (and minima) are applied in f32 to
// the products of 16 or 32 columns. Layouts: tile_pack.cuh writes what is read here.
#pragma once

#include "kernels/cuda/device_matrix.h"
#include "kernels/cuda/mma.cuh"

namespace bellhop::kernels {

// One group of 32 columns: fragments of both halves (16 columns each), rows g and g + 8.
template <int kTerms>
struct GroupFragment {
  uint32_t a[kTerms][2][4];
  float scale[2][2];  // [half][row g, g + 8]
  float min[2];       // [row]: subtracted, times the sum of the activations
};

// Four codes of a word of nibbles as bf16 minus kZero; word: nibbles (0, 1) of a pair in the low and high half.
template <int kZero>
__device__ __forceinline__ uint32_t NibblePair(uint32_t word) {
  const __nv_bfloat162 zero = __floats2bfloat162_rn(128.0f + kZero, 128.0f + kZero);
  return Bits(__hsub2(Pair(MaskOr<0x000F000F, 0x43004300>(word)), zero));
}

__device__ __forceinline__ uint4 Load16(const uint8_t* p) { return __ldg(reinterpret_cast<const uint4*>(p)); }
__device__ __forceinline__ uint2 Load8(const uint8_t* p) { return __ldg(reinterpret_cast<const uint2*>(p)); }
__device__ __forceinline__ uint32_t Load4(const uint8_t* p) { return __ldg(reinterpret_cast<const uint32_t*>(p)); }
__device__ __forceinline__ uint32_t Load2(const uint8_t* p) { return __ldg(reinterpret_cast<const uint16_t*>(p)); }
__device__ __forceinline__ uint32_t Load1(const uint8_t* p) { return __ldg(p); }
// Bytes in shared memory; others are in global memory, where nobody writes them meanwhile.
struct SharedBytes {
  const uint8_t* data;
  __device__ __forceinline__ SharedBytes operator+(int bytes) const { return {data + bytes}; }
};
__device__ __forceinline__ uint4 Load16(SharedBytes p) { return *reinterpret_cast<const uint4*>(p.data); }
__device__ __forceinline__ uint2 Load8(SharedBytes p) { return *reinterpret_cast<const uint2*>(p.data); }
__device__ __forceinline__ uint32_t Load4(SharedBytes p) { return *reinterpret_cast<const uint32_t*>(p.data); }
__device__ __forceinline__ uint32_t Load2(SharedBytes p) { return *reinterpret_cast<const uint16_t*>(p.data); }
__device__ __forceinline__ uint32_t Load1(SharedBytes p) { return *p.data; }
__device__ __forceinline__ uint32_t Word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

struct NoTables {
  __device__ void Fill(const void*) {}
};

// Both rows of a lane; of a format's LoadRow, which brings row r of a chunk (g + 8 * r) to row `to` of its registers.
template <typename Format>
struct TileLoads {
  static __device__ __forceinline__ auto Load(const uint8_t* chunk, int lane) {
    typename Format::Chunk c;
    Format::LoadRow(chunk, 0, lane, &c, 0);
    Format::LoadRow(chunk, 1, lane, &c, 1);
    return c;
  }
};

struct TileQ4_0 : TileLoads<TileQ4_0> {
  static constexpr quant::WeightFormat kFormat = quant::WeightFormat::kQ4_0;
  static constexpr int kGroups = 4, kTerms = 1;
  static constexpr bool kOneScale = true, kMins = false;
  using Tables = NoTables;
  struct Chunk {
    uint4 codes[2];
    uint2 scales[2];
  };
  template <typename Bytes>
  static __device__ __forceinline__ void LoadRow(Bytes chunk, int r, int lane, Chunk* c, int to) {
    c->codes[to] = Load16(chunk + (512 * r + lane * 16));
    c->scales[to] = Load8(chunk + (1024 + 64 * r + lane / 4 * 8));
  }
  static __device__ __forceinline__ void Expand(const Chunk& c, int i, int, const Tables&, GroupFragment<1>* f) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t w = Word(c.codes[r], i);
      f->a[0][0][r] = NibblePair<8>(w);
      f->a[0][0][2 + r] = NibblePair<8>(w >> 8);
      f->a[0][1][r] = NibblePair<8>(w >> 4);
      f->a[0][1][2 + r] = NibblePair<8>(w >> 12);
      f->scale[0][r] = HalfBits((i < 2 ? c.scales[r].x : c.scales[r].y) >> (16 * (i % 2)));
    }
  }
};

// E2M1 codes: their bits at the top of a bf16 are the value times 2^-126.
struct TileMxfp4 : TileLoads<TileMxfp4> {
  static constexpr quant::WeightFormat kFormat = quant::WeightFormat::kMXFP4;
  static constexpr int kGroups = 4, kTerms = 1;
  static constexpr bool kOneScale = true, kMins = false;
  using Tables = NoTables;
  struct Chunk {
    uint4 codes[2];
    uint32_t scales[2];
  };
  template <typename Bytes>
  static __device__ __forceinline__ void LoadRow(Bytes chunk, int r, int lane, Chunk* c, int to) {
    c->codes[to] = Load16(chunk + (512 * r + lane * 16));
    c->scales[to] = Load4(chunk + (1024 + 32 * r + lane / 4 * 4));
  }
  // Nibbles at bits 0..3 of both halves.
  static __device__ __forceinline__ uint32_t Values(uint32_t w) {
    const uint32_t bits = (w & 0x00080008u) << 12 | (w & 0x00070007u) << 6;
    return Bits(__hmul2(Pair(bits), Pair(0x7E807E80u)));
  }
  static __device__ __forceinline__ void Expand(const Chunk& c, int i, int, const Tables&, GroupFragment<1>* f) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t w = Word(c.codes[r], i);
      f->a[0][0][r] = Values(w);
      f->a[0][0][2 + r] = Values(w >> 8);
      f->a[0][1][r] = Values(w >> 4);
      f->a[0][1][2 + r] = Values(w >> 12);
      const uint32_t e = c.scales[r] >> (8 * i) & 0xFFu;
      f->scale[0][r] = __uint_as_float(e == 0 ? 0x00400000u : e << 23);
    }
  }
};

struct TileQ8_0 : TileLoads<TileQ8_0> {
  static constexpr quant::WeightFormat kFormat = quant::WeightFormat::kQ8_0;
  static constexpr int kGroups = 2, kTerms = 1;
  static constexpr bool kOneScale = true, kMins = false;
  using Tables = NoTables;
  struct Chunk {
    uint4 codes[2];
    uint32_t scales[2];
  };
  template <typename Bytes>
  static __device__ __forceinline__ void LoadRow(Bytes chunk, int r, int lane, Chunk* c, int to) {
    c->codes[to] = Load16(chunk + (512 * r + lane * 16));
    c->scales[to] = Load4(chunk + (1024 + 32 * r + lane / 4 * 4));
  }
  // Bytes 0 and 2 of codes + 128 as bf16 minus 128: sixteen times the high nibble and the low one, all exact.
  static __device__ __forceinline__ uint32_t Values(uint32_t w) {
    const __nv_bfloat162 high = Pair(NibblePair<8>(w >> 4)), low = Pair(NibblePair<0>(w));
    return Bits(__hfma2(high, __floats2bfloat162_rn(16.0f, 16.0f), low));
  }
  static __device__ __forceinline__ void Expand(const Chunk& c, int i, int, const Tables&, GroupFragment<1>* f) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t w = Word(c.codes[r], 2 * i + half);
        f->a[0][half][r] = Values(w);
        f->a[0][half][2 + r] = Values(w >> 8);
      }
      f->scale[0][r] = HalfBits(c.scales[r] >> (16 * i));
    }
  }
};

struct TileQ4K : TileLoads<TileQ4K> {
  static constexpr quant::WeightFormat kFormat = quant::WeightFormat::kQ4K;
  static constexpr int kGroups = 8, kTerms = 1;
  static constexpr bool kOneScale = true, kMins = true;
  using Tables = NoTables;
  struct Chunk {
    uint4 codes[2][2];  // [row][columns 0..127, 128..255]
    uint4 header[2];    // d, dmin, twelve bytes of scales and minima
  };
  template <typename Bytes>
  static __device__ __forceinline__ void LoadRow(Bytes chunk, int r, int lane, Chunk* c, int to) {
    const Bytes codes = chunk + (512 * r + lane * 16);
    c->codes[to][0] = Load16(codes);
    c->codes[to][1] = Load16(codes + 1024);
    c->header[to] = Load16(chunk + (2048 + 128 * r + lane / 4 * 16));
  }
  static __device__ __forceinline__ void ScaleMin(const uint4& h, int i, float* scale, float* min) {
    // Bytes 0..3 of the field are h.y, 4..7 h.z, 8..11 h.w.
    const int at = 8 * (i % 4);
    uint32_t s, m;
    if (i < 4) {
      s = h.y >> at & 63u;
      m = h.z >> at & 63u;
    } else {
      s = (h.w >> at & 15u) | (h.y >> (at + 6) & 3u) << 4;
      m = (h.w >> (at + 4) & 15u) | (h.z >> (at + 6) & 3u) << 4;
    }
    *scale = HalfBits(h.x) * static_cast<float>(s);
    *min = HalfBits(h.x >> 16) * static_cast<float>(m);
  }
  static __device__ __forceinline__ void Expand(const Chunk& c, int i, int, const Tables&, GroupFragment<1>* f) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t w = Word(c.codes[r][i / 4], i / 2 % 2 * 2 + half) >> (4 * (i % 2));
        f->a[0][half][r] = NibblePair<0>(w);
        f->a[0][half][2 + r] = NibblePair<0>(w >> 8);
      }
      ScaleMin(c.header[r], i, &f->scale[0][r], &f->min[r]);
    }
  }
};

// Minima of a row's eight groups of Q4_K as exact bf16 integers: those of groups 2 * t and 2 * t + 1, and their factor.
__device__ __forceinline__ uint32_t MinPair(const TileQ4K::Chunk& c, int r, int t, float* factor) {
  const uint4& h = c.header[r];
  const int at = t % 2 * 16;
  const uint32_t z = h.z >> at, w = h.w >> at;
  const uint32_t bytes = t < 2 ? z & 0x3F3Fu : (w >> 4 & 0x0F0Fu) | (z >> 2 & 0x3030u);
  *factor = HalfBits(h.x >> 16);
  const __nv_bfloat162 zero = __floats2bfloat162_rn(128.0f, 128.0f);
  return Bits(__hsub2(Pair(__byte_perm(bytes, 0, 0x4140) | 0x43004300u), zero));
}

struct TileQ6K : TileLoads<TileQ6K> {
  static constexpr quant::WeightFormat kFormat = quant::WeightFormat::kQ6K;
  static constexpr int kGroups = 8, kTerms = 1;
  static constexpr bool kOneScale = false, kMins = false;
  using Tables = NoTables;
  struct Chunk {
    uint4 low[2][2];  // [row][groups 0..3, 4..7]: nibbles, a word a group
    uint4 high[2];    // two bits, a word two groups
    uint4 scales[2];  // [row]: i8 of each half
    uint32_t d[2];
  };
  template <typename Bytes>
  static __device__ __forceinline__ void LoadRow(Bytes chunk, int r, int lane, Chunk* c, int to) {
    const Bytes codes = chunk + (512 * r + lane * 16);
    c->low[to][0] = Load16(codes);
    c->low[to][1] = Load16(codes + 1024);
    c->high[to] = Load16(codes + 2048);
    c->scales[to] = Load16(chunk + (3072 + 128 * r + lane / 4 * 16));
    c->d[to] = Load2(chunk + (3328 + 16 * r + lane / 4 * 2));
  }
  static __device__ __forceinline__ void Expand(const Chunk& c, int i, int, const Tables&, GroupFragment<1>* f) {
    const __nv_bfloat162 zero = __floats2bfloat162_rn(160.0f, 160.0f);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t low = Word(c.low[r][i / 4], i % 4), high = Word(c.high[r], i / 2) >> (8 * (i % 2));
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const uint32_t code = MaskOr<0x000F000F, 0x43004300>(low >> (4 * pair)) | (high >> (2 * pair) & 0x00030003u)
                                                                                      << 4;
        f->a[0][pair / 2][pair % 2 * 2 + r] = Bits(__hsub2(Pair(code), zero));
      }
      const float d = HalfBits(c.d[r]);
      const uint32_t pair = Word(c.scales[r], i / 2) >> (16 * (i % 2));
      f->scale[0][r] = d * static_cast<float>(static_cast<int8_t>(pair & 0xFFu));
      f->scale[1][r] = d * static_cast<float>(static_cast<int8_t>(pair >> 8 & 0xFFu));
    }
  }
};

struct TileIq3Xxs : TileLoads<TileIq3Xxs> {
  static constexpr quant::WeightFormat kFormat = quant::WeightFormat::kIQ3XXS;
  static constexpr int kGroups = 8, kTerms = 1;
  static constexpr bool kOneScale = true, kMins = false;
  // Grid entries as two pairs of bf16.
  struct Tables {
    uint2 grid[256];
    // books: [256][4] bytes.
    __device__ void Fill(const void* books) {
      const auto* entries = static_cast<const uchar4*>(books);
      for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) {
        const uchar4 e = entries[i];
        grid[i] = {Bits(__floats2bfloat162_rn(e.x, e.y)), Bits(__floats2bfloat162_rn(e.z, e.w))};
      }
    }
  };
  struct Chunk {
    uint4 index[2];
    uint4 signs[2][2];
    uint32_t d[2];
  };
  template <typename Bytes>
  static __device__ __forceinline__ void LoadRow(Bytes chunk, int r, int lane, Chunk* c, int to) {
    const Bytes signs = chunk + (1024 + 256 * r + lane / 4 * 32);
    c->index[to] = Load16(chunk + (512 * r + lane * 16));
    c->signs[to][0] = Load16(signs);
    c->signs[to][1] = Load16(signs + 16);
    c->d[to] = Load2(chunk + (1536 + 16 * r + lane / 4 * 2));
  }
  static __device__ __forceinline__ uint32_t SignBits(uint32_t two) { return (two & 1u) << 15 | (two & 2u) << 30; }
  static __device__ __forceinline__ void Expand(const Chunk& c, int i, int t, const Tables& tables,
                                                GroupFragment<1>* f) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t w = Word(c.signs[r][i / 4], i % 4);
      const uint32_t index = Word(c.index[r], i / 2) >> (16 * (i % 2));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t code = w >> (7 * (2 * half + t / 2)) & 127u;
        const uint32_t mask = (code | (__popc(code) & 1u) << 7) >> (4 * (t % 2));
        const uint2 grid = tables.grid[index >> (8 * half) & 0xFFu];
        f->a[0][half][r] = grid.x ^ SignBits(mask);
        f->a[0][half][2 + r] = grid.y ^ SignBits(mask >> 2);
      }
      f->scale[0][r] = HalfBits(c.d[r]) * (0.5f + static_cast<float>(w >> 28)) * 0.5f;
    }
  }
};

// Codes of three bits, two and one apart, and a scale for 64 columns.
struct TileInt3 {
  static constexpr quant::WeightFormat kFormat = quant::WeightFormat::kInt3;
  static constexpr int kGroups = 4, kTerms = 1;
  static constexpr bool kOneScale = true, kMins = false;
  using Tables = NoTables;
  struct Chunk {
    uint2 low[2];  // a word two groups
    uint32_t high[2];
    uint32_t scales[2];
  };
  template <typename Bytes>
  static __device__ __forceinline__ void LoadRow(Bytes chunk, int r, int lane, Chunk* c, int to) {
    c->low[to] = Load8(chunk + (lane * 16 + 8 * r));
    c->high[to] = Load4(chunk + (512 + lane * 8 + 4 * r));
    c->scales[to] = Load4(chunk + (768 + 32 * r + lane / 4 * 4));
  }
  // Both rows in one load each.
  static __device__ __forceinline__ Chunk Load(const uint8_t* chunk, int lane) {
    const uint8_t* const scales = chunk + 768 + lane / 4 * 4;
    const uint4 low = Load16(chunk + lane * 16);
    const uint2 high = Load8(chunk + 512 + lane * 8);
    return {{{low.x, low.y}, {low.z, low.w}}, {high.x, high.y}, {Load4(scales), Load4(scales + 32)}};
  }
  static __device__ __forceinline__ void Expand(const Chunk& c, int i, int, const Tables&, GroupFragment<1>* f) {
    const __nv_bfloat162 zero = __floats2bfloat162_rn(132.0f, 132.0f);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t low = (i < 2 ? c.low[r].x : c.low[r].y) >> (8 * (i % 2)), high = c.high[r];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const int bit = 4 * i + pair;
        const uint32_t top = bit < 2 ? high << (2 - bit) : high >> (bit - 2);
        const uint32_t code = MaskOr<0x00030003, 0x43004300>(low >> (2 * pair)) | (top & 0x00040004u);
        f->a[0][pair / 2][pair % 2 * 2 + r] = Bits(__hsub2(Pair(code), zero));
      }
      f->scale[0][r] = HalfBits(c.scales[r] >> (16 * (i / 2)));
    }
  }
};

// bf16 as it is, f16 as two terms, f32 as three.
template <quant::WeightFormat F, int kBytes, int kSplit>
struct TilePlain : TileLoads<TilePlain<F, kBytes, kSplit>> {
  static constexpr quant::WeightFormat kFormat = F;
  static constexpr int kGroups = 1, kTerms = kSplit;
  static constexpr bool kOneScale = true, kMins = false;
  using Tables = NoTables;
  struct Chunk {
    uint4 values[2][kBytes / 2];
  };
  template <typename Bytes>
  static __device__ __forceinline__ void LoadRow(Bytes chunk, int r, int lane, Chunk* c, int to) {
    const Bytes own = chunk + (512 * r + lane * 16);
#pragma unroll
    for (int v = 0; v < kBytes / 2; ++v) c->values[to][v] = Load16(own + 1024 * v);
  }
  // Element pair p (0, 1: the first half; 2, 3: the second) of a row.
  static __device__ __forceinline__ void PairOf(const Chunk& c, int r, int p, float* a, float* b) {
    if constexpr (kBytes == 4) {
      const uint4& v = c.values[r][p / 2];
      *a = __uint_as_float(Word(v, p % 2 * 2));
      *b = __uint_as_float(Word(v, p % 2 * 2 + 1));
    } else {
      const uint32_t w = Word(c.values[r][0], p);
      *a = HalfBits(w);
      *b = HalfBits(w >> 16);
    }
  }
  static __device__ __forceinline__ void Expand(const Chunk& c, int, int, const Tables&, GroupFragment<kSplit>* f) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        if constexpr (F == quant::WeightFormat::kBF16) {
          f->a[0][p / 2][p % 2 * 2 + r] = Word(c.values[r][0], p);
        } else {
          float a, b;
          PairOf(c, r, p, &a, &b);
#pragma unroll
          for (int term = 0; term < kSplit; ++term) f->a[term][p / 2][p % 2 * 2 + r] = TakePair(a, b);
        }
      }
      f->scale[0][r] = 1;
    }
  }
};
using TileF32 = TilePlain<quant::WeightFormat::kF32, 4, 3>;
using TileTwoTermF32 = TilePlain<quant::WeightFormat::kF32, 4, 2>;
using TileF16 = TilePlain<quant::WeightFormat::kF16, 2, 2>;
using TileBF16 = TilePlain<quant::WeightFormat::kBF16, 2, 1>;

}  // namespace bellhop::kernels
