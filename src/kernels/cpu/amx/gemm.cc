// TDPBF16PS on tiles of 16 weight rows x 16 activation rows x 32 columns. Decoded tiles are bf16 in blocks of 16 rows:
// [row block][group of 32 columns][16 rows][32], so that one tile load reads 1 KiB in a row.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/gemm.h"

namespace bellhop::kernels::amx {
namespace {

using avx512::F32x16;
using avx512::FirstLanes;
using avx512::Load;
using avx512::LoadN;
using avx512::Zero;

inline constexpr int64_t kTileBytes = 1024;
inline constexpr int kTileStride = 64;

// The unit takes denormals as zeros, rounds to nearest even and quiets NaN, whatever MXCSR says.
inline __m512i RoundPairs(F32x16 a, F32x16 b) {
  const __m512bh pairs = _mm512_cvtne2ps_pbh(b.v, a.v);
  return reinterpret_cast<__m512i>(pairs);
}
inline __m512i ZipPairs(F32x16 a, F32x16 b) {
  alignas(64) static constexpr uint16_t kZip[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kZip), RoundPairs(a, b));
}

#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/gemm_fill_body.inc"

#include "kernels/cpu/gemm_zmm_body.inc"

inline std::byte* TileRow(const FillArgs& args, int64_t tile_row, int64_t column) {
  const int64_t block_bytes = PaddedColumns(args.weights->cols) / kGemmGroup * kTileBytes;
  return args.tile + tile_row / 16 * block_bytes + column / kGemmGroup * kTileBytes + tile_row % 16 * kTileStride;
}

inline void StoreRow(const float* values, int64_t n, const FillArgs& args, int64_t tile_row, int64_t column) {
  std::byte* out = TileRow(args, tile_row, column);
  for (int64_t c = 0; c < n; c += kGemmGroup, out += kTileBytes) {
    _mm512_store_si512(out, RoundPairs(Load(values + c), Load(values + c + 16)));
  }
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles: sums 0 to 3, then operands. With one block of weight rows: weights 4, panels 5 to 7; with two: weights 4 and
// 5, panels 6 and 7.
inline void Configure(int64_t n) {
  const auto first = static_cast<uint8_t>(n < 16 ? n : 16), second = static_cast<uint8_t>(n - first);
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = kTileStride;
    config.rows[t] = 16;
  }
  config.rows[0] = config.rows[1] = config.rows[4] = first;
  config.rows[2] = config.rows[3] = second == 0 ? first : second;
  if (second != 0) config.rows[5] = second;
  // GCC 12 does not know that the instruction reads the configuration, and would drop the stores.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// One block of weight rows with four panels (or the `count` first of them).
inline void OneByFour(const std::byte* w, const std::byte* x, int64_t panel_bytes, int64_t groups, int64_t count,
                      float* yt, int64_t stride) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t g = 0; g < groups; ++g, w += kTileBytes, x += kTileBytes) {
    _tile_loadd(4, w, kTileStride);
    _tile_loadd(5, x, kTileStride);
    _tile_dpbf16ps(0, 4, 5);
    if (count > 1) {
      _tile_loadd(6, x + panel_bytes, kTileStride);
      _tile_dpbf16ps(1, 4, 6);
    }
    if (count > 2) {
      _tile_loadd(7, x + 2 * panel_bytes, kTileStride);
      _tile_dpbf16ps(2, 4, 7);
    }
    if (count > 3) {
      _tile_loadd(5, x + 3 * panel_bytes, kTileStride);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  const int64_t bytes = stride * 4;
  _tile_stored(0, yt, bytes);
  if (count > 1) _tile_stored(1, yt + 16, bytes);
  if (count > 2) _tile_stored(2, yt + 32, bytes);
  if (count > 3) _tile_stored(3, yt + 48, bytes);
}

// Two blocks of weight rows with two panels, or one.
template <bool kTwoPanels>
inline void TwoByTwo(const std::byte* w, const std::byte* x, int64_t panel_bytes, int64_t groups, float* yt,
                     int64_t stride) {
  const std::byte* second = w + groups * kTileBytes;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t g = 0; g < groups; ++g, w += kTileBytes, second += kTileBytes, x += kTileBytes) {
    _tile_loadd(4, w, kTileStride);
    _tile_loadd(6, x, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, second, kTileStride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTwoPanels) {
      _tile_loadd(7, x + panel_bytes, kTileStride);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  const int64_t bytes = stride * 4;
  _tile_stored(0, yt, bytes);
  _tile_stored(2, yt + 16 * stride, bytes);
  if constexpr (kTwoPanels) {
    _tile_stored(1, yt + 16, bytes);
    _tile_stored(3, yt + 16 * stride + 16, bytes);
  }
}

inline void Multiply(const GemmArgs& args) {
  const int64_t groups = PaddedColumns(args.k) / kGemmGroup;
  const int64_t panel_bytes = groups * kTileBytes;
  const int64_t panels = (args.rows + kGemmPanelRows - 1) / kGemmPanelRows;
  Configure(args.n);
  const std::byte* x = args.packed;
  float* yt = args.yt;
  if (args.n <= 16) {
    for (int64_t p = 0; p < panels; p += 4, x += 4 * panel_bytes, yt += 64) {
      OneByFour(args.tile, x, panel_bytes, groups, panels - p, yt, args.yt_stride);
    }
  } else {
    int64_t p = 0;
    for (; p + 2 <= panels; p += 2, x += 2 * panel_bytes, yt += 32) {
      TwoByTwo<true>(args.tile, x, panel_bytes, groups, yt, args.yt_stride);
    }
    if (p < panels) TwoByTwo<false>(args.tile, x, panel_bytes, groups, yt, args.yt_stride);
  }
  _tile_release();
}

}  // namespace
}  // namespace bellhop::kernels::amx

#define BELLHOP_GEMM_NAMESPACE amx
#define BELLHOP_GEMM_NAME(function) gemm_bf16_bf16_f32_amx_##function
#include "kernels/cpu/gemm_entries.inc"
