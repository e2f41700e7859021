#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/avx512/codes.h"
#include "kernels/cpu/avx512/f32x16.h"
#include "kernels/gemm.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/planar.h"

namespace bellhop::kernels::avx512 {
namespace {

// 32 registers: 16 sums, the x of the panels, weights. Three and four panels at once were no faster, 24 sums slower.
inline constexpr int kPanels = 2;
constexpr int RowsAtOnce(int) { return 8; }
constexpr bool ChainsApart(int panels) { return panels > 1; }
inline constexpr int64_t kExpandedColumns = 64;  // 8 KiB of two panels

inline F32x16 FirstOfPairs(const std::byte* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(p), 16))};
}
inline __m512i UpperHalves(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))); }
inline F32x16 SecondOfPairs(const std::byte* p) { return {_mm512_castsi512_ps(UpperHalves(_mm512_load_si512(p)))}; }

// Bits of x whose upper half is x as bf16.
inline __m512i FlushedBf16Bits(F32x16 x) {
  const __m512i u = _mm512_castps_si512(x.v);
  const __mmask16 denormal = _mm512_testn_epi32_mask(u, _mm512_set1_epi32(0x7F800000));
  return _mm512_mask_and_epi32(RoundedBf16Bits(x), denormal, u, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
}
inline F32x16 RoundFlushed(F32x16 x) { return {_mm512_castsi512_ps(UpperHalves(FlushedBf16Bits(x)))}; }
// The same where no value is a denormal, an infinity or a NaN: half the work. The upper half of a word comes to its
// lower half by a product, because shifts share their port with permutes.
inline F32x16 RoundNormal(F32x16 x) {
  const __m512i u = _mm512_castps_si512(x.v), upper = _mm512_madd_epi16(u, _mm512_set1_epi32(1 << 16));
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  return {_mm512_castsi512_ps(UpperHalves(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd)))};
}

inline __m512i RoundPairs(F32x16 a, F32x16 b) {
  alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(FlushedBf16Bits(a), _mm512_load_si512(kUpper), FlushedBf16Bits(b));
}
inline __m512i ZipPairs(F32x16 a, F32x16 b) {
  return _mm512_or_si512(_mm512_srli_epi32(FlushedBf16Bits(a), 16), UpperHalves(FlushedBf16Bits(b)));
}

#include "kernels/cpu/block_codes_body.inc"
#include "kernels/cpu/codebook_codes_body.inc"
#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/gemm_fill_body.inc"

#include "kernels/cpu/gemm_body.inc"
#include "kernels/cpu/gemm_zmm_body.inc"

inline constexpr int64_t kGroupStride = kGemmGroup * 4;
inline int64_t TermBytes(const FillArgs& args) { return kGemmTileRows * TileStride(args.weights->cols) * 4; }

inline constexpr bool kModestIsFaster = true;
template <Term kTerm>
inline F32x16 Round(F32x16 x) {
  if constexpr (kTerm == Term::kRest) return RoundFlushed(Sub(x, RoundFlushed(x)));
  return kTerm == Term::kModest ? RoundNormal(x) : RoundFlushed(x);
}
template <Term kTerm>
inline void StoreGroup(uint8_t* out, F32x16 a, F32x16 b) {
  float* f = reinterpret_cast<float*>(out);
  Store(f, Round<kTerm>(a));
  Store(f + 16, Round<kTerm>(b));
}

struct Tables {
  __m512 table[2];
};
template <Term kTerm>
inline Tables MakeTables(F32x16 a, F32x16 b) {
  return {{Round<kTerm>(a).v, Round<kTerm>(b).v}};
}
// The permute ignores the bits above the nibble.
inline void StoreLookedUp(uint8_t* out, __m512 table, __m512i first, __m512i second) {
  float* f = reinterpret_cast<float*>(out);
  _mm512_store_ps(f, _mm512_permutexvar_ps(first, table));
  _mm512_store_ps(f + 16, _mm512_permutexvar_ps(second, table));
}
template <int kTable>
inline void StoreNibbles(uint8_t* out, const Tables& tables, const uint8_t* p) {
  const __m512i bytes = WidenBytes(p);
  StoreLookedUp(out, tables.table[kTable], bytes, _mm512_srli_epi32(bytes, 4));
}
inline void StoreNibblePair(uint8_t* out, const Tables& tables, const uint8_t* p) {
  const __m512i first = WidenBytes(p), second = WidenBytes(p + 16);
  StoreLookedUp(out, tables.table[0], first, second);
  StoreLookedUp(out + kGroupStride, tables.table[1], _mm512_srli_epi32(first, 4), _mm512_srli_epi32(second, 4));
}

inline void FillPlanar(const FillArgs& args);

#include "kernels/cpu/gemm_direct_fill_body.inc"

// INT4 as most models have it: a half scale for whole groups of columns and no zero points.
inline bool IsPlainInt4(const quant::QuantView& w) {
  return w.format == quant::WeightFormat::kInt4 && w.scale_type == quant::ScaleType::kF16 &&
         w.planes[quant::kZeroPointsPlane].data == nullptr && w.group % kGemmGroup == 0 && w.cols % kGemmGroup == 0;
}

// The codes of a group, four bits each, looked up among the 16 values of a scale.
inline void StoreInt4(uint8_t* out, __m512 table, const uint8_t* p) {
  const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const auto words = [&](const uint8_t* q) BELLHOP_INLINE {
    const __m512i low = _mm512_set1_epi32(LoadAs<int32_t>(q));
    return _mm512_srlv_epi32(_mm512_mask_set1_epi32(low, 0xFF00, LoadAs<int32_t>(q + 4)), shift);
  };
  StoreLookedUp(out, table, words(p), words(p + 8));
}

template <Term kTerm>
BELLHOP_INLINE inline void FillInt4Groups(const uint8_t* codes, const float* scale, int64_t groups, int64_t per_scale,
                                          int64_t ahead, uint8_t* out) {
  const F32x16 values = FromI8(reinterpret_cast<const uint8_t*>(kSignedNibbles));
  const auto table = [&](int64_t i) BELLHOP_INLINE { return Round<kTerm>(Mul(values, Splat(scale[i]))).v; };
  if (groups == 8 && per_scale == 1) {  // a block of columns
    ForEach<8>([&]<int g>() BELLHOP_INLINE {
      if constexpr (g % 4 == 0) PrefetchAhead(codes + 16 * g, ahead);
      StoreInt4(out + g * kGroupStride, table(g), codes + 16 * g);
    });
    return;
  }
  for (int64_t g = 0, i = 0; g < groups; ++i) {
    const __m512 values_of_scale = table(i);
    for (int64_t end = g + per_scale < groups ? g + per_scale : groups; g < end;
         ++g, codes += 16, out += kGroupStride) {
      PrefetchAhead(codes, ahead);
      StoreInt4(out, values_of_scale, codes);
    }
  }
}

inline void FillInt4(const FillArgs& args) {
  constexpr int64_t kMostScales = 64;
  const quant::QuantView& w = *args.weights;
  const quant::QuantPlane &codes = w.planes[quant::kCodesPlane], &scales = w.planes[quant::kScalesPlane];
  const int64_t piece = kMostScales * w.group, scales_ahead = args.ahead / codes.row_bytes * scales.row_bytes;
  const bool short_rows = w.cols / 2 < codes.row_bytes;
  for (int64_t row = args.rows.begin; row < args.rows.end; ++row) {
    const auto* p = reinterpret_cast<const uint8_t*>(codes.data) + row * codes.row_bytes;
    const auto* halves = reinterpret_cast<const uint8_t*>(scales.data) + row * scales.row_bytes + 2 * w.first_group;
    uint8_t* out = reinterpret_cast<uint8_t*>(TileRow(args, args.first_row + row - args.rows.begin));
    if (short_rows && row + kRowsAhead < args.rows.end) PrefetchRow(p + kRowsAhead * codes.row_bytes, w.cols / 2);
    for (int64_t c = 0; c < w.cols; c += piece) {
      const int64_t columns = w.cols - c < piece ? w.cols - c : piece, count = (columns + w.group - 1) / w.group;
      alignas(64) float scale[kMostScales];
      for (int64_t i = 0; i < count; i += 16, halves += 32) {
        PrefetchAhead(halves, scales_ahead);
        const __mmask16 lanes = count - i < 16 ? FirstLanes(count - i) : static_cast<__mmask16>(0xFFFF);
        Store(scale + i, FromF16(_mm256_maskz_loadu_epi16(lanes, halves)));
      }
      KeepInMemory(scale);
      const int64_t groups = columns / kGemmGroup, per_scale = w.group / kGemmGroup;
      if (AreModest<false>(scale, static_cast<int>(count))) {
        FillInt4Groups<Term::kModest>(p + c / 2, scale, groups, per_scale, args.ahead, out + c * 4);
      } else {
        FillInt4Groups<Term::kRounded>(p + c / 2, scale, groups, per_scale, args.ahead, out + c * 4);
      }
    }
  }
}

inline void FillPlanar(const FillArgs& args) {
  if (args.terms == 1 && IsPlainInt4(*args.weights)) {
    FillInt4(args);
  } else {
    FillRows(args);
  }
}

// Columns of a tile that are decoded and multiplied at once: 32 KiB.
inline constexpr int64_t kBlockColumns = 256;

#include "kernels/cpu/gemm_blocks_body.inc"

inline void FillMultiply(const FillArgs* parts, int count, const GemmArgs& args) {
  if (args.terms != 1 || args.k <= kBlockColumns || !CanCutColumns(parts, count)) {
    for (int i = 0; i < count; ++i) FillTileRows(parts[i]);
    Multiply(args);
    return;
  }
  ClearProducts(args);
  const auto columns_at = [&](int64_t c) { return args.k - c < kBlockColumns ? args.k - c : kBlockColumns; };
  BlockFill fill(parts, count, args.k);
  for (int64_t c = 0; c < args.k; c += kBlockColumns) {
    fill.Fill();
    const int64_t next = c + kBlockColumns;
    if (next < args.k) fill.Next();
    const FlushDenormals flush;
    AddColumns(ColumnsOf(args, c, columns_at(c)));
  }
}

}  // namespace
}  // namespace bellhop::kernels::avx512

#define BELLHOP_GEMM_NAMESPACE avx512
#define BELLHOP_GEMM_NAME(function) gemm_bf16_bf16_f32_avx512_##function
#include "kernels/cpu/gemm_entries.inc"
