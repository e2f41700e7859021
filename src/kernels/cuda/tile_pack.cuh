// From file rows and planes to tiles: what a warp writes of a chunk. tile_formats.cuh reads it.
#pragma once

#include "kernels/cuda/device_matrix.h"

namespace bellhop::kernels {
namespace tile_pack {

using quant::WeightFormat;

// A row's bytes from its first packed chunk on. Rows (null) and bytes that the matrix does not have are zero.
struct Source {
  const uint8_t* row = nullptr;
  int64_t bytes = 0;
  // Of planar rows: the scale of the first column and those behind it.
  const uint8_t* scales = nullptr;
  int32_t group = 1, in_group = 0;  // columns per scale; where in its group the first column is
  int64_t cols = 0;                 // from the first on

  __device__ uint32_t Byte(int64_t at) const { return row != nullptr && at < bytes ? row[at] : 0u; }
  __device__ uint32_t Half(int64_t at) const { return Byte(at) | Byte(at + 1) << 8; }
  __device__ uint32_t Word(int64_t at) const { return Half(at) | Half(at + 2) << 16; }
  // Of a column.
  __device__ uint32_t ScaleHalf(int64_t col) const {
    if (row == nullptr || col >= cols) return 0;
    const uint8_t* const at = scales + (in_group + col) / group * 2;
    return at[0] | static_cast<uint32_t>(at[1]) << 8;
  }
  __device__ uint32_t ScaleByte(int64_t col) const {
    return row == nullptr || col >= cols ? 0u : scales[(in_group + col) / group];
  }
};

// Four bytes of codes so that a word's pairs are those of the fragments: bytes 0, 2, 1, 3.
__device__ inline uint32_t FourBytes(const Source& s, int64_t at) {
  return s.Byte(at) | s.Byte(at + 2) << 8 | s.Byte(at + 1) << 16 | s.Byte(at + 3) << 24;
}

// Planar nibbles of group i of a chunk of 128 columns as a word of the blocks' order: byte j of a block holds columns j
// and 16 + j.
__device__ inline uint32_t BlockNibbles(const Source& s, int c, int i, int t) {
  auto nibble = [&](int e) { return s.Byte(int64_t{64} * c + e / 2) >> (4 * (e % 2)) & 15u; };
  uint32_t w = 0;
  for (int b = 0; b < 4; ++b) {
    const int e = 32 * i + 4 * t + (b == 1 ? 2 : b == 2 ? 1 : b);
    w |= (nibble(e) | nibble(e + 16) << 4) << (8 * b);
  }
  return w;
}

__device__ inline void Store16(uint8_t* to, const uint32_t (&w)[4]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(w[0], w[1], w[2], w[3]);
}

// What one thread writes: lane 4 * g + t of row half r. `c`: chunk, from the source's first.
template <WeightFormat F>
__device__ void PackChunk(const Source& s, int c, int r, int g, int t, uint8_t* chunk) {
  const int lane = 4 * g + t;
  uint32_t w[4];
  if constexpr (F == WeightFormat::kQ4_0) {
    for (int i = 0; i < 4; ++i) w[i] = FourBytes(s, (4 * c + i) * 18 + 2 + 4 * t);
    Store16(chunk + 512 * r + lane * 16, w);
    reinterpret_cast<uint16_t*>(chunk + 1024 + 64 * r + g * 8)[t] = static_cast<uint16_t>(s.Half((4 * c + t) * 18));
  } else if constexpr (F == WeightFormat::kMXFP4) {
    for (int i = 0; i < 4; ++i) w[i] = FourBytes(s, (4 * c + i) * 17 + 1 + 4 * t);
    Store16(chunk + 512 * r + lane * 16, w);
    (chunk + 1024 + 32 * r + g * 4)[t] = static_cast<uint8_t>(s.Byte((4 * c + t) * 17));
  } else if constexpr (F == WeightFormat::kQ8_0) {
    for (int i = 0; i < 4; ++i) {
      w[i] = FourBytes(s, (2 * c + i / 2) * 34 + 2 + 16 * (i % 2) + 4 * t) ^ 0x80808080u;
    }
    Store16(chunk + 512 * r + lane * 16, w);
    if (t < 2) {
      reinterpret_cast<uint16_t*>(chunk + 1024 + 32 * r + g * 4)[t] = static_cast<uint16_t>(s.Half((2 * c + t) * 34));
    }
  } else if constexpr (F == WeightFormat::kQ4K) {
    const int64_t block = int64_t{c} * 144;
    for (int v = 0; v < 2; ++v) {
      for (int i = 0; i < 4; ++i) w[i] = FourBytes(s, block + 16 + 32 * (2 * v + i / 2) + 16 * (i % 2) + 4 * t);
      Store16(chunk + 1024 * v + 512 * r + lane * 16, w);
    }
    reinterpret_cast<uint32_t*>(chunk + 2048 + 128 * r + g * 16)[t] = s.Word(block + 4 * t);
  } else if constexpr (F == WeightFormat::kQ6K) {
    const int64_t block = int64_t{c} * 210;
    // Element e of 256: nibble and two bits, as docs/formats.md says.
    auto nibble = [&](int e) {
      const int n = e / 128, in = e % 128;
      return s.Byte(block + 64 * n + in % 64) >> (4 * (in / 64)) & 15u;
    };
    auto top = [&](int e) {
      const int n = e / 128, in = e % 128;
      return s.Byte(block + 128 + 32 * n + in % 32) >> (2 * (in / 32)) & 3u;
    };
    for (int v = 0; v < 2; ++v) {
      for (int i = 0; i < 4; ++i) {
        w[i] = 0;
        for (int pair = 0; pair < 4; ++pair) {
          const int e = 32 * (4 * v + i) + 16 * (pair / 2) + 4 * t + 2 * (pair % 2);
          w[i] |= (nibble(e) | nibble(e + 1) << 16) << (4 * pair);
        }
      }
      Store16(chunk + 1024 * v + 512 * r + lane * 16, w);
    }
    for (int i = 0; i < 4; ++i) {
      w[i] = 0;
      for (int group = 0; group < 2; ++group) {
        for (int pair = 0; pair < 4; ++pair) {
          const int e = 32 * (2 * i + group) + 16 * (pair / 2) + 4 * t + 2 * (pair % 2);
          w[i] |= (top(e) | top(e + 1) << 16) << (8 * group + 2 * pair);
        }
      }
    }
    Store16(chunk + 2048 + 512 * r + lane * 16, w);
    reinterpret_cast<uint32_t*>(chunk + 3072 + 128 * r + g * 16)[t] = s.Word(block + 192 + 4 * t);
    if (t == 0)
      *reinterpret_cast<uint16_t*>(chunk + 3328 + 16 * r + g * 2) = static_cast<uint16_t>(s.Half(block + 208));
  } else if constexpr (F == WeightFormat::kIQ3XXS) {
    const int64_t block = int64_t{c} * 98;
    for (int i = 0; i < 4; ++i) {
      const int64_t at = block + 2 + 16 * i + t;  // groups 2i and 2i + 1
      w[i] = s.Byte(at) | s.Byte(at + 4) << 8 | s.Byte(at + 8) << 16 | s.Byte(at + 12) << 24;
    }
    Store16(chunk + 512 * r + lane * 16, w);
    for (int i = 0; i < 2; ++i) {
      reinterpret_cast<uint32_t*>(chunk + 1024 + 256 * r + g * 32)[2 * t + i] = s.Word(block + 66 + 4 * (2 * t + i));
    }
    if (t == 0) *reinterpret_cast<uint16_t*>(chunk + 1536 + 16 * r + g * 2) = static_cast<uint16_t>(s.Half(block));
  } else if constexpr (F == WeightFormat::kInt4) {
    for (int i = 0; i < 4; ++i) w[i] = BlockNibbles(s, c, i, t);
    Store16(chunk + 512 * r + lane * 16, w);
    reinterpret_cast<uint16_t*>(chunk + 1024 + 64 * r + g * 8)[t] =
        static_cast<uint16_t>(s.ScaleHalf(int64_t{128} * c + 32 * t));
  } else if constexpr (F == WeightFormat::kMxfp4Planar) {
    for (int i = 0; i < 4; ++i) w[i] = BlockNibbles(s, c, i, t);
    Store16(chunk + 512 * r + lane * 16, w);
    (chunk + 1024 + 32 * r + g * 4)[t] = static_cast<uint8_t>(s.ScaleByte(int64_t{128} * c + 32 * t));
  } else if constexpr (F == WeightFormat::kInt8) {
    for (int i = 0; i < 4; ++i) w[i] = FourBytes(s, int64_t{64} * c + 16 * i + 4 * t);
    Store16(chunk + 512 * r + lane * 16, w);
    if (t < 2) {
      reinterpret_cast<uint16_t*>(chunk + 1024 + 32 * r + g * 4)[t] =
          static_cast<uint16_t>(s.ScaleHalf(int64_t{64} * c + 32 * t));
    }
  } else if constexpr (F == WeightFormat::kInt3) {
    auto code = [&](int e) { return s.Half(int64_t{48} * c + 3 * e / 8) >> (3 * e % 8) & 7u; };
    uint32_t low[2] = {}, high = 0;
    for (int i = 0; i < 4; ++i) {
      for (int pair = 0; pair < 4; ++pair) {
        const int e = 32 * i + 16 * (pair / 2) + 4 * t + 2 * (pair % 2);
        const uint32_t a = code(e), b = code(e + 1);
        low[i / 2] |= ((a & 3u) | (b & 3u) << 16) << (8 * (i % 2) + 2 * pair);
        high |= (a >> 2 | b >> 2 << 16) << (4 * i + pair);
      }
    }
    *reinterpret_cast<uint2*>(chunk + lane * 16 + 8 * r) = make_uint2(low[0], low[1]);
    *reinterpret_cast<uint32_t*>(chunk + 512 + lane * 8 + 4 * r) = high;
    if (t < 2) {
      reinterpret_cast<uint16_t*>(chunk + 768 + 32 * r + g * 4)[t] =
          static_cast<uint16_t>(s.ScaleHalf(int64_t{128} * c + 64 * t));
    }
  } else if constexpr (F == WeightFormat::kF32) {
    for (int v = 0; v < 2; ++v) {
      for (int i = 0; i < 4; ++i) w[i] = s.Word(4 * (32 * int64_t{c} + 16 * v + 4 * t + i));
      Store16(chunk + 512 * (2 * v + r) + lane * 16, w);
    }
  } else {
    static_assert(F == WeightFormat::kF16 || F == WeightFormat::kBF16);
    for (int i = 0; i < 4; ++i) w[i] = s.Word(2 * (32 * int64_t{c} + 16 * (i / 2) + 4 * t + 2 * (i % 2)));
    Store16(chunk + 512 * r + lane * 16, w);
  }
}

// One warp: a chunk of a tile. row(i): the source of row i of 16.
template <WeightFormat F, typename RowOf>
__device__ __forceinline__ void PackTileChunk(const RowOf& row, int c, int lane, uint8_t* chunk) {
  for (int r = 0; r < 2; ++r) PackChunk<F>(row(lane / 4 + 8 * r), c, r, lane / 4, lane % 4, chunk);
}

}  // namespace tile_pack
}  // namespace bellhop::kernels
