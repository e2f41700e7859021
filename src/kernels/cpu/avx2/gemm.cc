#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/avx2/f32x16.h"
#include "kernels/gemm.h"

namespace bellhop::kernels::avx2 {
namespace {

// 16 registers, two per F32x16: six sums, the x of a panel, a weight.
inline constexpr int kPanels = 1;
constexpr int RowsAtOnce(int) { return 3; }
constexpr bool ChainsApart(int) { return false; }
inline constexpr int64_t kExpandedColumns = 128;  // 8 KiB

inline __m256i LoadInts(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
inline F32x16 FirstOfPairs(const std::byte* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(LoadInts(p), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(LoadInts(p + 32), 16))};
}
inline __m256i UpperHalves(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))); }
inline F32x16 SecondOfPairs(const std::byte* p) {
  return {_mm256_castsi256_ps(UpperHalves(LoadInts(p))), _mm256_castsi256_ps(UpperHalves(LoadInts(p + 32)))};
}

// x as bf16 in the upper halves, zeros in the lower ones.
inline __m256i FlushedBf16(__m256 x) {
  const __m256i u = _mm256_castps_si256(x), exponent = _mm256_set1_epi32(0x7F800000);
  const __m256i denormal = _mm256_cmpeq_epi32(_mm256_and_si256(u, exponent), _mm256_setzero_si256());
  const __m256i zero = _mm256_and_si256(u, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
  return _mm256_blendv_epi8(UpperHalves(RoundedBf16Bits(x)), zero, denormal);
}
inline F32x16 RoundFlushed(F32x16 x) {
  return {_mm256_castsi256_ps(FlushedBf16(x.lo)), _mm256_castsi256_ps(FlushedBf16(x.hi))};
}

#include "kernels/cpu/for_each_body.inc"

#include "kernels/cpu/gemm_fill_body.inc"

#include "kernels/cpu/gemm_body.inc"

// Element (i, j) of the 8 x 8 matrix of 32-bit elements becomes element (j, i).
inline void Transpose8(__m256* r) {
  __m256 t[8];
  ForEach<4>([&]<int i>() BELLHOP_INLINE {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  });
  // u[4 q + c] half h: column 4 h + c of rows 4 q .. 4 q + 3.
  __m256 u[8];
  ForEach<2>([&]<int q>() BELLHOP_INLINE {
    u[4 * q] = _mm256_shuffle_ps(t[4 * q], t[4 * q + 2], 0x44);
    u[4 * q + 1] = _mm256_shuffle_ps(t[4 * q], t[4 * q + 2], 0xEE);
    u[4 * q + 2] = _mm256_shuffle_ps(t[4 * q + 1], t[4 * q + 3], 0x44);
    u[4 * q + 3] = _mm256_shuffle_ps(t[4 * q + 1], t[4 * q + 3], 0xEE);
  });
  ForEach<4>([&]<int c>() BELLHOP_INLINE {
    r[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
    r[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
  });
}

// The eight pairs of 16 columns of a row as bf16; `left` columns are inside.
inline __m256 RowPairs(const float* row, int64_t left) {
  const F32x16 x = left >= 16 ? Load(row) : left > 0 ? LoadN(row, left) : Zero();
  // Columns 0..3 and 8..11, then 4..7 and 12..15: shuffles work within 128-bit halves.
  const __m256 first = _mm256_permute2f128_ps(x.lo, x.hi, 0x20), second = _mm256_permute2f128_ps(x.lo, x.hi, 0x31);
  const __m256 even = _mm256_shuffle_ps(first, second, 0x88), odd = _mm256_shuffle_ps(first, second, 0xDD);
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_srli_epi32(FlushedBf16(even), 16), FlushedBf16(odd)));
}

inline void Pack(const MatView<const float>& x, const int32_t* rows, RowRange range, std::byte* packed) {
  const int64_t padded = PaddedColumns(x.cols);
  const int64_t end = (range.end + kGemmPanelRows - 1) & -kGemmPanelRows;
  for (int64_t m = range.begin; m < end; m += 8) {
    std::byte* out = packed + m / kGemmPanelRows * padded * kGemmPanelRows * 2 + m % kGemmPanelRows * 4;
    for (int64_t c = 0; c < padded; c += 16, out += 8 * kPanelPairBytes) {
      __m256 pairs[8];
      for (int64_t i = 0; i < 8; ++i) {
        const bool inside = m + i < range.end;
        pairs[i] = inside ? RowPairs(x.data + (rows == nullptr ? m + i : rows[m + i]) * x.stride + c, x.cols - c)
                          : _mm256_setzero_ps();
      }
      Transpose8(pairs);
      for (int64_t i = 0; i < 8; ++i) _mm256_store_ps(reinterpret_cast<float*>(out + i * kPanelPairBytes), pairs[i]);
    }
  }
}

inline void PackTransposed(const MatView<const float>& ht, int64_t k_begin, int64_t k, std::byte* packed) {
  const int64_t padded = PaddedColumns(k);
  const int64_t end = k_begin + ht.rows == k ? padded - k_begin : ht.rows;
  for (int64_t m = 0; m < ht.cols; m += kGemmPanelRows) {
    const int64_t left = ht.cols - m;
    std::byte* out = packed + m / kGemmPanelRows * padded * kGemmPanelRows * 2 + k_begin / 2 * kPanelPairBytes;
    for (int64_t c = 0; c < end; c += 2, out += kPanelPairBytes) {
      F32x16 x[2] = {Zero(), Zero()};
      for (int64_t i = 0; i < 2 && c + i < ht.rows; ++i) {
        const float* column = ht.data + (c + i) * ht.stride + m;
        x[i] = left >= 16 ? Load(column) : LoadN(column, left);
      }
      __m256i* pairs = reinterpret_cast<__m256i*>(out);
      _mm256_store_si256(pairs, _mm256_or_si256(_mm256_srli_epi32(FlushedBf16(x[0].lo), 16), FlushedBf16(x[1].lo)));
      _mm256_store_si256(pairs + 1, _mm256_or_si256(_mm256_srli_epi32(FlushedBf16(x[0].hi), 16), FlushedBf16(x[1].hi)));
    }
  }
}

inline void TransposeStore(const TransposeArgs& args) {
  const __m256 scale = _mm256_set1_ps(args.scale);
  for (int64_t j = 0; j < args.n; j += 8) {
    const int64_t columns = args.n - j < 8 ? args.n - j : 8;
    const __m256i lanes = FirstLanes(columns).lo;
    const __m256 bias = args.bias == nullptr ? _mm256_setzero_ps() : _mm256_maskload_ps(args.bias + j, lanes);
    for (int64_t m = 0; m < args.rows; m += 8) {
      const float* yt = args.yt + j * args.yt_stride + m;
      __m256 r[8];
      for (int64_t i = 0; i < 8; ++i)
        r[i] = i < columns ? _mm256_loadu_ps(yt + i * args.yt_stride) : _mm256_setzero_ps();
      Transpose8(r);
      float* y = args.y + m * args.y_stride + j;
      const int64_t count = args.rows - m < 8 ? args.rows - m : 8;
      for (int64_t i = 0; i < count; ++i) {
        __m256 v = _mm256_mul_ps(r[i], scale);
        if (args.bias != nullptr) v = _mm256_add_ps(v, bias);
        if (columns == 8) {
          _mm256_storeu_ps(y + i * args.y_stride, v);
        } else {
          _mm256_maskstore_ps(y + i * args.y_stride, lanes, v);
        }
      }
    }
  }
}

inline void FillTileRows(const FillArgs& args) { FillRows(args); }

// The tile stays in L2; a product takes so long that decoding into L1 would not show.
inline void FillMultiply(const FillArgs* parts, int count, const GemmArgs& args) {
  for (int i = 0; i < count; ++i) FillTileRows(parts[i]);
  Multiply(args);
}

}  // namespace
}  // namespace bellhop::kernels::avx2

#define BELLHOP_GEMM_NAMESPACE avx2
#define BELLHOP_GEMM_NAME(function) gemm_bf16_bf16_f32_avx2_##function
#include "kernels/cpu/gemm_entries.inc"
