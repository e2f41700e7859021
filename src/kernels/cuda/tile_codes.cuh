// How the experts of a step read a weight tile (tile_formats.cuh has the layouts): codes go into the tensor cores as
// they lie. An unsigned code of up to eight bits in the low bits of a bf16 is a subnormal number, or one next to them,
// and exactly the code times 2^-133; one that lies four bits higher is 16 times that. So a mask decodes it. Activations
// are multiplied by powers of two to match (Exponent), which leaves all products 2^-kProductExponent too small, and
// what the zero point adds is taken off by their sums (kZero).
//
// A chunk is cut into turns of kUnits units, a unit is kSteps times 16 columns that share a scale. TileCodes<Format>:
// Load brings a lane's codes of a chunk, LoadScale what Factor and Min need of a unit of row g + 8 r, Expand makes the
// mma fragments of 16 columns of both rows.
#pragma once

#include "kernels/cuda/tile_formats.cuh"

namespace bellhop::kernels {

inline constexpr int kProductExponent = 43;
inline constexpr int kCodeExponent = 133 - kProductExponent;  // of activations that multiply codes in the lowest bits

constexpr float PowerOfTwo(int exponent) {
  float power = 1;
  for (int i = 0; i < (exponent < 0 ? -exponent : exponent); ++i) power *= exponent < 0 ? 0.5f : 2.0f;
  return power;
}
// A pair of bf16.
constexpr uint32_t PowerPair(int exponent) {
  return static_cast<uint32_t>(127 + exponent) << 7 | static_cast<uint32_t>(127 + exponent) << 23;
}

// w << left, or to the right.
__device__ __forceinline__ uint32_t Shift(uint32_t w, int left) { return left >= 0 ? w << left : w >> -left; }

// Formats of two rows of sixteen bytes of codes a lane, and one term a weight.
struct OneTermCodes {
  static constexpr int kTerms = 1;
  static constexpr bool kScales = true, kMins = false;
  static constexpr float kResult = PowerOfTwo(kProductExponent);
  struct Codes {
    uint4 words[2];
  };
  using Scale = uint32_t;
  using Tables = NoTables;
  template <typename Bytes>
  static __device__ __forceinline__ void Load(Bytes chunk, int lane, Codes* c) {
    c->words[0] = Load16(chunk + lane * 16);
    c->words[1] = Load16(chunk + (512 + lane * 16));
  }
  static __device__ __forceinline__ float Factor(Scale scale, int, int) { return HalfBits(scale); }
  static __device__ __forceinline__ float Min(Scale, int, int) { return 0; }
};

template <typename Format>
struct TileCodes;

template <>
struct TileCodes<TileQ4_0> : OneTermCodes {
  static constexpr int kTurns = 1, kUnits = 4, kSteps = 2, kZero = 8;
  // The second half's nibbles lie four bits higher.
  static constexpr int Exponent(int, int step) { return kCodeExponent - 4 * step; }
  template <typename Bytes>
  static __device__ __forceinline__ Scale LoadScale(Bytes chunk, int r, int lane, int, int unit) {
    return Load2(chunk + (1024 + 64 * r + lane / 4 * 8 + 2 * unit));
  }
  static __device__ __forceinline__ void Expand(const Codes& c, int, int unit, int step, int, const NoTables&,
                                                uint32_t (&a)[1][4]) {
    const uint32_t mask = step == 0 ? 0x000F000Fu : 0x00F000F0u;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t w = Word(c.words[r], unit);
      a[0][r] = w & mask;
      a[0][2 + r] = w >> 8 & mask;
    }
  }
};

template <>
struct TileCodes<TileMxfp4> : OneTermCodes {
  static constexpr int kTurns = 1, kUnits = 4, kSteps = 2, kZero = 0;
  // E2M1 at the top of a bf16 is the value times 2^-126.
  static constexpr int Exponent(int, int) { return 126 - kProductExponent; }
  template <typename Bytes>
  static __device__ __forceinline__ Scale LoadScale(Bytes chunk, int r, int lane, int, int unit) {
    return Load1(chunk + (1024 + 32 * r + lane / 4 * 4 + unit));
  }
  static __device__ __forceinline__ float Factor(Scale e, int, int) {
    return __uint_as_float(e == 0 ? 0x00400000u : e << 23);
  }
  // Nibble 0 .. 3 of both halves of a word.
  static __device__ __forceinline__ uint32_t Values(uint32_t w, int nibble) {
    return (Shift(w, 12 - 4 * nibble) & 0x80008000u) | (Shift(w, 6 - 4 * nibble) & 0x01C001C0u);
  }
  static __device__ __forceinline__ void Expand(const Codes& c, int, int unit, int step, int, const NoTables&,
                                                uint32_t (&a)[1][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t w = Word(c.words[r], unit);
      a[0][r] = Values(w, step);
      a[0][2 + r] = Values(w, 2 + step);
    }
  }
};

template <>
struct TileCodes<TileQ8_0> : OneTermCodes {
  static constexpr int kTurns = 1, kUnits = 2, kSteps = 2, kZero = 128;
  static constexpr int Exponent(int, int) { return kCodeExponent; }
  template <typename Bytes>
  static __device__ __forceinline__ Scale LoadScale(Bytes chunk, int r, int lane, int, int unit) {
    return Load2(chunk + (1024 + 32 * r + lane / 4 * 4 + 2 * unit));
  }
  static __device__ __forceinline__ void Expand(const Codes& c, int, int unit, int step, int, const NoTables&,
                                                uint32_t (&a)[1][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t w = Word(c.words[r], 2 * unit + step);
      a[0][r] = w & 0x00FF00FFu;
      a[0][2 + r] = w >> 8 & 0x00FF00FFu;
    }
  }
};

template <>
struct TileCodes<TileInt3> : OneTermCodes {
  static constexpr int kTurns = 1, kUnits = 4, kSteps = 2, kZero = 4;
  static constexpr int Exponent(int, int) { return kCodeExponent; }
  struct Codes {
    uint4 low;   // two words of each row
    uint2 high;  // a word of each row
  };
  template <typename Bytes>
  static __device__ __forceinline__ void Load(Bytes chunk, int lane, Codes* c) {
    c->low = Load16(chunk + lane * 16);
    c->high = Load8(chunk + (512 + lane * 8));
  }
  template <typename Bytes>
  static __device__ __forceinline__ Scale LoadScale(Bytes chunk, int r, int lane, int, int unit) {
    return Load2(chunk + (768 + 32 * r + lane / 4 * 4 + unit / 2 * 2));
  }
  static __device__ __forceinline__ uint32_t Values(uint32_t low, uint32_t high, int bit) {
    return (low >> (2 * (bit % 8)) & 0x00030003u) | (Shift(high, 2 - bit) & 0x00040004u);
  }
  static __device__ __forceinline__ void Expand(const Codes& c, int, int unit, int step, int, const NoTables&,
                                                uint32_t (&a)[1][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t low = Word(c.low, 2 * r + unit / 2), high = r == 0 ? c.high.x : c.high.y;
      a[0][r] = Values(low, high, 4 * unit + 2 * step);
      a[0][2 + r] = Values(low, high, 4 * unit + 2 * step + 1);
    }
  }
};

template <>
struct TileCodes<TileQ4K> : OneTermCodes {
  static constexpr int kTurns = 2, kUnits = 4, kSteps = 2, kZero = 0;
  static constexpr bool kMins = true;
  // Odd groups are the high nibbles.
  static constexpr int Exponent(int unit, int) { return kCodeExponent - 4 * (unit % 2); }
  struct Codes {
    uint4 words[2][2];  // [row][turn]
  };
  using Scale = uint4;  // d, dmin, twelve bytes of scales and minima
  template <typename Bytes>
  static __device__ __forceinline__ void Load(Bytes chunk, int lane, Codes* c) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      c->words[r][0] = Load16(chunk + (512 * r + lane * 16));
      c->words[r][1] = Load16(chunk + (1024 + 512 * r + lane * 16));
    }
  }
  template <typename Bytes>
  static __device__ __forceinline__ Scale LoadScale(Bytes chunk, int r, int lane, int, int) {
    return Load16(chunk + (2048 + 128 * r + lane / 4 * 16));
  }
  static __device__ __forceinline__ float Factor(const Scale& h, int turn, int unit) {
    const int at = 8 * unit;
    const uint32_t s = turn == 0 ? h.y >> at & 63u : (h.w >> at & 15u) | (h.y >> (at + 6) & 3u) << 4;
    return HalfBits(h.x) * static_cast<float>(s);
  }
  static __device__ __forceinline__ float Min(const Scale& h, int turn, int unit) {
    const int at = 8 * unit;
    const uint32_t m = turn == 0 ? h.z >> at & 63u : (h.w >> (at + 4) & 15u) | (h.z >> (at + 6) & 3u) << 4;
    return HalfBits(h.x >> 16) * static_cast<float>(m);
  }
  static __device__ __forceinline__ void Expand(const Codes& c, int turn, int unit, int step, int, const NoTables&,
                                                uint32_t (&a)[1][4]) {
    const uint32_t mask = unit % 2 == 0 ? 0x000F000Fu : 0x00F000F0u;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t w = Word(c.words[r][turn], unit / 2 * 2 + step);
      a[0][r] = w & mask;
      a[0][2 + r] = w >> 8 & mask;
    }
  }
};

// A unit is a half of a group of 32 columns.
template <>
struct TileCodes<TileQ6K> : OneTermCodes {
  static constexpr int kTurns = 4, kUnits = 4, kSteps = 1, kZero = 32;
  static constexpr int Exponent(int, int) { return kCodeExponent; }
  struct Codes {
    uint4 low[2][2], high[2];  // as TileQ6K::Chunk
  };
  struct Scale {
    uint32_t d, scale;
  };
  template <typename Bytes>
  static __device__ __forceinline__ void Load(Bytes chunk, int lane, Codes* c) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Bytes codes = chunk + (512 * r + lane * 16);
      c->low[r][0] = Load16(codes);
      c->low[r][1] = Load16(codes + 1024);
      c->high[r] = Load16(codes + 2048);
    }
  }
  template <typename Bytes>
  static __device__ __forceinline__ Scale LoadScale(Bytes chunk, int r, int lane, int turn, int unit) {
    return {Load2(chunk + (3328 + 16 * r + lane / 4 * 2)),
            Load1(chunk + (3072 + 128 * r + lane / 4 * 16 + 4 * turn + unit))};
  }
  static __device__ __forceinline__ float Factor(Scale s, int, int) {
    return HalfBits(s.d) * static_cast<float>(static_cast<int8_t>(s.scale));
  }
  static __device__ __forceinline__ float Min(Scale, int, int) { return 0; }
  static __device__ __forceinline__ void Expand(const Codes& c, int turn, int unit, int, int, const NoTables&,
                                                uint32_t (&a)[1][4]) {
    const int group = 2 * turn + unit / 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t low = Word(c.low[r][turn / 2], group % 4), high = Word(c.high[r], turn);
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const int pair = unit % 2 * 2 + p, left = 4 - 2 * pair - 8 * (group % 2);
        a[0][2 * p + r] = (low >> (4 * pair) & 0x000F000Fu) | (Shift(high, left) & 0x00300030u);
      }
    }
  }
};

// Grid entries as bytes 0, 2, 1, 3, so that a mask gives a pair.
struct GridBytes {
  uint32_t grid[256];
  // books: [256][4] bytes.
  __device__ void Fill(const void* books) {
    const auto* const entries = static_cast<const uint32_t*>(books);
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) grid[i] = __byte_perm(entries[i], 0, 0x3120);
  }
};

template <>
struct TileCodes<TileIq3Xxs> : OneTermCodes {
  static constexpr int kTurns = 2, kUnits = 4, kSteps = 2, kZero = 0;
  using Tables = GridBytes;
  static constexpr int Exponent(int, int) { return kCodeExponent; }
  struct Codes {
    uint4 index[2], signs[2][2];
  };
  struct Scale {
    uint32_t d, signs;
  };
  template <typename Bytes>
  static __device__ __forceinline__ void Load(Bytes chunk, int lane, Codes* c) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Bytes signs = chunk + (1024 + 256 * r + lane / 4 * 32);
      c->index[r] = Load16(chunk + (512 * r + lane * 16));
      c->signs[r][0] = Load16(signs);
      c->signs[r][1] = Load16(signs + 16);
    }
  }
  template <typename Bytes>
  static __device__ __forceinline__ Scale LoadScale(Bytes chunk, int r, int lane, int turn, int unit) {
    return {Load2(chunk + (1536 + 16 * r + lane / 4 * 2)),
            Load4(chunk + (1024 + 256 * r + lane / 4 * 32 + 16 * turn + 4 * unit))};
  }
  static __device__ __forceinline__ float Factor(Scale s, int, int) {
    return HalfBits(s.d) * (0.5f + static_cast<float>(s.signs >> 28)) * 0.5f;
  }
  static __device__ __forceinline__ float Min(Scale, int, int) { return 0; }
  static __device__ __forceinline__ void Expand(const Codes& c, int turn, int unit, int step, int t,
                                                const GridBytes& tables, uint32_t (&a)[1][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t w = Word(c.signs[r][turn], unit);
      const uint32_t index = Word(c.index[r], 2 * turn + unit / 2) >> (16 * (unit % 2) + 8 * step) & 0xFFu;
      const uint32_t code = w >> (7 * (2 * step + t / 2)) & 127u;
      const uint32_t mask = (code | (__popc(code) & 1u) << 7) >> (4 * (t % 2));
      const uint32_t grid = tables.grid[index];
      a[0][r] = (grid & 0x00FF00FFu) ^ TileIq3Xxs::SignBits(mask);
      a[0][2 + r] = (grid >> 8 & 0x00FF00FFu) ^ TileIq3Xxs::SignBits(mask >> 2);
    }
  }
};

// f16 as two terms, bf16 as it is: numbers of their own size.
template <quant::WeightFormat F, int kBytes, int kSplit>
struct TileCodes<TilePlain<F, kBytes, kSplit>> : OneTermCodes {
  using Format = TilePlain<F, kBytes, kSplit>;
  static constexpr int kTurns = 1, kUnits = 1, kSteps = 2, kZero = 0, kTerms = kSplit;
  static constexpr bool kScales = false;
  static constexpr float kResult = 1;
  static constexpr int Exponent(int, int) { return 0; }
  static_assert(kBytes == 2);
  template <typename Bytes>
  static __device__ __forceinline__ Scale LoadScale(Bytes, int, int, int, int) {
    return 0;
  }
  static __device__ __forceinline__ void Expand(const Codes& c, int, int, int step, int, const NoTables&,
                                                uint32_t (&a)[kTerms][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const uint32_t w = Word(c.words[r], 2 * step + p);
        if constexpr (F == quant::WeightFormat::kBF16) {
          a[0][2 * p + r] = w;
        } else {
          float low = HalfBits(w), high = HalfBits(w >> 16);
#pragma unroll
          for (int term = 0; term < kTerms; ++term) a[term][2 * p + r] = TakePair(low, high);
        }
      }
    }
  }
};

}  // namespace bellhop::kernels
