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
#include "quant/planar.h"

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

inline constexpr bool kModestIsFaster = false;
template <Term kTerm>
inline __m512i RoundTerm(F32x16 a, F32x16 b) {
  return kTerm == Term::kRest ? RoundPairs(Sub(a, RoundFlushed(a)), Sub(b, RoundFlushed(b))) : RoundPairs(a, b);
}
template <Term kTerm>
inline void StoreGroup(void* out, F32x16 a, F32x16 b) {
  _mm512_store_si512(out, RoundTerm<kTerm>(a, b));
}

inline void StoreRow(const float* values, int64_t n, const FillArgs& args, int64_t tile_row, int64_t column) {
  std::byte* out = TileRow(args, tile_row) + column / kGemmGroup * kTileBytes;
  for (int64_t c = 0; c < n; c += kGemmGroup, out += kTileBytes) {
    const F32x16 a = Load(values + c), b = Load(values + c + 16);
    StoreGroup<Term::kRounded>(out, a, b);
    if (args.terms == 2) StoreGroup<Term::kRest>(out + TermBytes(args), a, b);
  }
}

// Two tables of 16 words in one register; bit 4 of an index chooses.
template <Term kTerm>
inline __m512i MakeTables(F32x16 a, F32x16 b) {
  return RoundTerm<kTerm>(a, b);
}
inline void StoreLookedUp(uint8_t* out, __m512i tables, __m512i nibbles, int table) {
  // (nibbles & 15) | table << 4
  const __m512i index = _mm512_ternarylogic_epi32(nibbles, _mm512_set1_epi16(15),
                                                  _mm512_set1_epi16(static_cast<int16_t>(table << 4)), 0xEA);
  _mm512_store_si512(out, _mm512_permutexvar_epi16(index, tables));
}
// Shifts to the right by multiplying: shifts share their port with the permutes, products do not.
template <int kTable>
inline void StoreNibbles(uint8_t* out, __m512i tables, const uint8_t* p) {
  // Upper halves of words: bytes 0 to 7 and 8 to 15, then the same again for the upper nibbles.
  alignas(64) static constexpr int8_t kWords[64] = {-1, 0, -1, 1, -1, 2,  -1, 3,  -1, 4,  -1, 5,  -1, 6,  -1, 7,
                                                    -1, 8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15,
                                                    -1, 0, -1, 1, -1, 2,  -1, 3,  -1, 4,  -1, 5,  -1, 6,  -1, 7,
                                                    -1, 8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15};
  alignas(64) static constexpr uint16_t kFactor[32] = {256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256,
                                                       256, 256, 256, 256, 256, 16,  16,  16,  16,  16,  16,
                                                       16,  16,  16,  16,  16,  16,  16,  16,  16,  16};
  const __m512i bytes = _mm512_broadcast_i32x4(Load16(p));
  const __m512i words = _mm512_shuffle_epi8(bytes, _mm512_load_si512(kWords));
  StoreLookedUp(out, tables, _mm512_mulhi_epu16(words, _mm512_load_si512(kFactor)), kTable);
}
inline void StoreNibblePair(uint8_t* out, __m512i tables, const uint8_t* p) {
  const __m512i words = _mm512_cvtepu8_epi16(Load32(p));
  StoreLookedUp(out, tables, words, 0);
  StoreLookedUp(out + kGroupStride, tables, _mm512_mulhi_epu16(words, _mm512_set1_epi16(1 << 12)), 1);
}

inline void FillPlanar(const FillArgs& args) {
  if (args.terms == 1) {
    FillPlanarTile(args);
  } else {
    FillRows(args);
  }
}

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

inline void Release() {
  _tile_release();
  // GCC copies small structures through vector registers and leaves their upper halves in use around tile instructions,
  // which makes all later SSE code slow.
  _mm256_zeroupper();
}

// What both shapes of the inner loop need. Weights: [terms][2 row blocks][groups] tiles.
struct Operands {
  const std::byte* weights;
  const std::byte* panels;
  int64_t groups, panel_bytes;
  int terms;
  float* yt;
  int64_t yt_bytes;  // from row to row
  // Where the sums begin and whether they go to yt: only the blocks of columns of one product make a difference.
  enum class Begin { kZero, kYt, kTiles } begin = Begin::kZero;
  bool store = true;
};

// Sums of the tiles 0 to 3: at[i] is where tile i belongs in yt.
inline void BeginSums(const Operands& o, const float* const* at) {
  if (o.begin == Operands::Begin::kZero) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else if (o.begin == Operands::Begin::kYt) {
    if (at[0] != nullptr) _tile_loadd(0, at[0], o.yt_bytes);
    if (at[1] != nullptr) _tile_loadd(1, at[1], o.yt_bytes);
    if (at[2] != nullptr) _tile_loadd(2, at[2], o.yt_bytes);
    if (at[3] != nullptr) _tile_loadd(3, at[3], o.yt_bytes);
  }
}
inline void EndSums(const Operands& o, float* const* at) {
  if (!o.store) return;
  if (at[0] != nullptr) _tile_stored(0, at[0], o.yt_bytes);
  if (at[1] != nullptr) _tile_stored(1, at[1], o.yt_bytes);
  if (at[2] != nullptr) _tile_stored(2, at[2], o.yt_bytes);
  if (at[3] != nullptr) _tile_stored(3, at[3], o.yt_bytes);
}

// One block of weight rows with the first `count` of four panels.
inline void OneByFour(const Operands& o, int64_t count) {
  float* const at[4] = {o.yt, count > 1 ? o.yt + 16 : nullptr, count > 2 ? o.yt + 32 : nullptr,
                        count > 3 ? o.yt + 48 : nullptr};
  BeginSums(o, at);
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
  EndSums(o, at);
}

// Two blocks of weight rows with two panels, or one.
template <bool kTwoPanels>
inline void TwoByTwo(const Operands& o) {
  float* lower = o.yt + 16 * o.yt_bytes / 4;
  float* const at[4] = {o.yt, kTwoPanels ? o.yt + 16 : nullptr, lower, kTwoPanels ? lower + 16 : nullptr};
  BeginSums(o, at);
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
  EndSums(o, at);
}

// Panels that are multiplied with n tile rows at once.
inline int64_t PanelsAtOnce(int64_t n) { return n <= 16 ? 4 : 2; }

// Panels of rows with one tile of weights.
inline void MultiplyPanels(const Operands& first, int64_t n, int64_t panels) {
  Operands o = first;
  const int64_t at_once = PanelsAtOnce(n);
  for (int64_t p = 0; p < panels; p += at_once) {
    if (n <= 16) {
      OneByFour(o, panels - p);
    } else if (panels - p >= 2) {
      TwoByTwo<true>(o);
    } else {
      TwoByTwo<false>(o);
    }
    o.panels += at_once * o.panel_bytes;
    o.yt += at_once * kPanelRows;
  }
}

inline void Multiply(const GemmArgs& args) {
  const int64_t groups = PaddedColumns(args.k) / kGemmGroup, panels = (args.rows + kPanelRows - 1) / kPanelRows;
  Configure(args.n);
  MultiplyPanels({.weights = args.tile,
                  .panels = args.packed,
                  .groups = groups,
                  .panel_bytes = groups * kTileBytes,
                  .terms = args.terms,
                  .yt = args.yt,
                  .yt_bytes = args.yt_stride * 4},
                 args.n, panels);
  Release();
}

// Columns of a tile that are decoded and multiplied at once: 16 KiB, which stay in L1 beside two panels, where whole
// tiles would lie in L2. Measured in docs/decisions/0007-one-order-for-prompt-products.md.
inline constexpr int64_t kBlockColumns = 256;

#include "kernels/cpu/gemm_blocks_body.inc"

inline void FillMultiply(const FillArgs* parts, int count, const GemmArgs& args) {
  if (args.terms != 1 || args.k <= kBlockColumns || !CanCutColumns(parts, count)) {
    for (int i = 0; i < count; ++i) FillTileRows(parts[i]);
    Multiply(args);
    return;
  }
  const auto columns_at = [&](int64_t c) { return args.k - c < kBlockColumns ? args.k - c : kBlockColumns; };
  const int64_t panels = (args.rows + kPanelRows - 1) / kPanelRows;
  const bool keep_tiles = panels <= PanelsAtOnce(args.n);  // the sums of all panels fit
  BlockFill fill(parts, count, args.k);
  Configure(args.n);
  for (int64_t c = 0; c < args.k; c += kBlockColumns) {
    fill.Fill();
    const int64_t next = c + kBlockColumns;
    if (next < args.k) fill.Next();
    using Begin = Operands::Begin;
    MultiplyPanels({.weights = args.tile,
                    .panels = args.packed + c / kGemmGroup * kTileBytes,
                    .groups = PaddedColumns(columns_at(c)) / kGemmGroup,
                    .panel_bytes = PaddedColumns(args.k) / kGemmGroup * kTileBytes,
                    .terms = 1,
                    .yt = args.yt,
                    .yt_bytes = args.yt_stride * 4,
                    .begin = c == 0       ? Begin::kZero
                             : keep_tiles ? Begin::kTiles
                                          : Begin::kYt,
                    .store = !keep_tiles || next >= args.k},
                   args.n, panels);
  }
  Release();
}

}  // namespace
}  // namespace bellhop::kernels::amx

#define BELLHOP_GEMM_NAMESPACE amx
#define BELLHOP_GEMM_NAME(function) gemm_bf16_bf16_f32_amx_##function
#include "kernels/cpu/gemm_entries.inc"
