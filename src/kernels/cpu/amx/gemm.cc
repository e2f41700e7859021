// TDPBF16PS on tiles of 16 weight rows x 16 activation rows x 32 columns. Decoded tiles are bf16 in blocks of 16 rows:
// [term][row block][group of 32 columns][16 rows][32], so that one tile load reads 1 KiB in a row.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/amx/planar_fill.h"
#include "kernels/cpu/avx512/codes.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/gemm.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace bellhop::kernels::amx {
namespace {

using namespace avx512;  // its registers and conversions, all of internal linkage

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

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/gemm_fill_body.inc"

#include "kernels/cpu/gemm_zmm_body.inc"

inline constexpr int64_t kGroupStride = kTileBytes;

inline std::byte* TileRow(const FillArgs& args, int64_t tile_row) {
  const int64_t block_bytes = PaddedColumns(args.weights->cols) / kGemmGroup * kTileBytes;
  return args.tile + tile_row / 16 * block_bytes + tile_row % 16 * kTileStride;
}

inline int64_t TermBytes(const FillArgs& args) {
  return 2 * PaddedColumns(args.weights->cols) / kGemmGroup * kTileBytes;
}

inline F32x16 RoundFlushed(F32x16 x) {
  return {_mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v))), 16))};
}

inline void StoreGroup(void* out, F32x16 a, F32x16 b) { _mm512_store_si512(out, RoundPairs(a, b)); }

inline void StoreRow(const float* values, int64_t n, const FillArgs& args, int64_t tile_row, int64_t column) {
  std::byte* out = TileRow(args, tile_row) + column / kGemmGroup * kTileBytes;
  for (int64_t c = 0; c < n; c += kGemmGroup, out += kTileBytes) {
    const F32x16 a = Load(values + c), b = Load(values + c + 16);
    StoreGroup(out, a, b);
    if (args.terms == 2) StoreGroup(out + TermBytes(args), Sub(a, RoundFlushed(a)), Sub(b, RoundFlushed(b)));
  }
}

// Two tables of 16 words in one register; bit 4 of an index chooses.
inline __m512i MakeTables(F32x16 a, F32x16 b) { return RoundPairs(a, b); }
inline void StoreLookedUp(uint8_t* out, __m512i tables, __m512i nibbles, int table) {
  // (nibbles & 15) | table << 4
  const __m512i index = _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi16(15),
                                                  _mm512_set1_epi16(static_cast<int16_t>(table << 4)), 0xEA);
  _mm512_store_si512(out, _mm512_permutexvar_epi16(index, tables));
}
template <int kTable>
inline void StoreNibbles(uint8_t* out, __m512i tables, const uint8_t* p) {
  // Words: bytes 0 to 7 and 8 to 15, then the same shifted.
  alignas(64) static constexpr int8_t kWords[64] = {0, -1, 1, -1, 2,  -1, 3,  -1, 4,  -1, 5,  -1, 6,  -1, 7,  -1,
                                                    8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15, -1,
                                                    0, -1, 1, -1, 2,  -1, 3,  -1, 4,  -1, 5,  -1, 6,  -1, 7,  -1,
                                                    8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15, -1};
  alignas(64) static constexpr uint16_t kShift[32] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                      4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4};
  const __m512i bytes = _mm512_broadcast_i32x4(Load16(p));
  const __m512i words = _mm512_shuffle_epi8(bytes, _mm512_load_si512(kWords));
  StoreLookedUp(out, tables, _mm512_srlv_epi16(words, _mm512_load_si512(kShift)), kTable);
}
inline void StoreNibblePair(uint8_t* out, __m512i tables, const uint8_t* p) {
  const __m512i words = _mm512_cvtepu8_epi16(Load32(p));
  StoreLookedUp(out, tables, words, 0);
  StoreLookedUp(out + kGroupStride, tables, _mm512_srli_epi16(words, 4), 1);
}

inline void FillPlanar(const FillArgs& args) { FillPlanarTile(args); }

#include "kernels/cpu/gemm_direct_fill_body.inc"

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

// What both shapes of the inner loop need. Weights: [terms][2 row blocks][groups] tiles.
struct Operands {
  const std::byte* weights;
  const std::byte* panels;
  int64_t groups, panel_bytes;
  int terms;
  float* yt;
  int64_t yt_bytes;  // from row to row
};

// One block of weight rows with the first `count` of four panels.
inline void OneByFour(const Operands& o, int64_t count) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int t = 0; t < o.terms; ++t) {
    const std::byte* w = o.weights + t * 2 * o.groups * kTileBytes;
    const std::byte* x = o.panels;
    for (int64_t g = 0; g < o.groups; ++g, w += kTileBytes, x += kTileBytes) {
      _tile_loadd(4, w, kTileStride);
      _tile_loadd(5, x, kTileStride);
      _tile_dpbf16ps(0, 4, 5);
      if (count > 1) {
        _tile_loadd(6, x + o.panel_bytes, kTileStride);
        _tile_dpbf16ps(1, 4, 6);
      }
      if (count > 2) {
        _tile_loadd(7, x + 2 * o.panel_bytes, kTileStride);
        _tile_dpbf16ps(2, 4, 7);
      }
      if (count > 3) {
        _tile_loadd(5, x + 3 * o.panel_bytes, kTileStride);
        _tile_dpbf16ps(3, 4, 5);
      }
    }
  }
  _tile_stored(0, o.yt, o.yt_bytes);
  if (count > 1) _tile_stored(1, o.yt + 16, o.yt_bytes);
  if (count > 2) _tile_stored(2, o.yt + 32, o.yt_bytes);
  if (count > 3) _tile_stored(3, o.yt + 48, o.yt_bytes);
}

// Two blocks of weight rows with two panels, or one.
template <bool kTwoPanels>
inline void TwoByTwo(const Operands& o) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int t = 0; t < o.terms; ++t) {
    const std::byte* w = o.weights + t * 2 * o.groups * kTileBytes;
    const std::byte* second = w + o.groups * kTileBytes;
    const std::byte* x = o.panels;
    for (int64_t g = 0; g < o.groups; ++g, w += kTileBytes, second += kTileBytes, x += kTileBytes) {
      _tile_loadd(4, w, kTileStride);
      _tile_loadd(6, x, kTileStride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, second, kTileStride);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoPanels) {
        _tile_loadd(7, x + o.panel_bytes, kTileStride);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  float* lower = o.yt + 16 * o.yt_bytes / 4;
  _tile_stored(0, o.yt, o.yt_bytes);
  _tile_stored(2, lower, o.yt_bytes);
  if constexpr (kTwoPanels) {
    _tile_stored(1, o.yt + 16, o.yt_bytes);
    _tile_stored(3, lower + 16, o.yt_bytes);
  }
}

inline void Multiply(const GemmArgs& args) {
  const int64_t groups = PaddedColumns(args.k) / kGemmGroup, panels = (args.rows + kPanelRows - 1) / kPanelRows;
  Operands o = {.weights = args.tile,
                .panels = args.packed,
                .groups = groups,
                .panel_bytes = groups * kTileBytes,
                .terms = args.terms,
                .yt = args.yt,
                .yt_bytes = args.yt_stride * 4};
  Configure(args.n);
  const int64_t at_once = args.n <= 16 ? 4 : 2;
  for (int64_t p = 0; p < panels; p += at_once) {
    if (args.n <= 16) {
      OneByFour(o, panels - p);
    } else if (panels - p >= 2) {
      TwoByTwo<true>(o);
    } else {
      TwoByTwo<false>(o);
    }
    o.panels += at_once * o.panel_bytes;
    o.yt += at_once * kPanelRows;
  }
  _tile_release();
}

}  // namespace
}  // namespace bellhop::kernels::amx

#define BELLHOP_GEMM_NAMESPACE amx
#define BELLHOP_GEMM_NAME(function) gemm_bf16_bf16_f32_amx_##function
#include "kernels/cpu/gemm_entries.inc"
