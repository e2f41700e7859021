// The reference of the prompt-class products: gemm.h word for word. Its tiles are f32, [term][32][padded columns].
#include <cfloat>
#include <cmath>
#include <cstring>

#include "kernels/gemm.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

constexpr int64_t kPair = 2 * kGemmPanelRows;  // elements of one column pair in a panel

float Flushed(float v) { return std::fabs(v) < FLT_MIN ? std::copysign(0.0f, v) : v; }

uint16_t ToBf16(float v) { return quant::F32ToBf16(Flushed(v)); }

// a * b + c, rounded once; a result that is too small for a normal number becomes zero. "Too small" is judged after
// rounding as if exponents had no lower bound, as the hardware does: what rounds up to FLT_MIN on the coarse grid of
// the denormals may still be below it on its own grid, which a scaled copy shows.
float FlushedFma(float a, float b, float c) {
  const float r = std::fma(a, b, c);
  if (std::fabs(r) > FLT_MIN) return r;
  if (std::fabs(r) < FLT_MIN) return std::copysign(0.0f, r);
  if (std::isnan(r)) return r;
  constexpr float kScale = 0x1p32f;
  const float scaled = std::fma(a * kScale, b, c * kScale);
  return std::fabs(scaled) < FLT_MIN * kScale ? std::copysign(0.0f, r) : r;
}

// Sums of two binary32 numbers are exact when they are that small, so that the question does not arise.
float FlushedSum(float a, float b) { return Flushed(a + b); }

// y + the products of one term, group by group.
float AddProducts(float y, const float* w, const uint16_t* x, int64_t padded_k) {
  for (int64_t g = 0; g < padded_k; g += kGemmGroup) {
    float even = 0, odd = 0;
    for (int64_t c = g; c < g + kGemmGroup; c += 2) {
      const uint16_t* pair = x + c / 2 * kPair;
      even = FlushedFma(w[c], quant::Bf16ToF32(pair[0]), even);
      odd = FlushedFma(w[c + 1], quant::Bf16ToF32(pair[1]), odd);
    }
    y = FlushedSum(y, FlushedSum(even, odd));
  }
  return y;
}

// Element (row, column) of a packed matrix.
uint16_t* PackedAt(std::byte* packed, int64_t k, int64_t row, int64_t column) {
  auto* panel = reinterpret_cast<uint16_t*>(packed + row / kGemmPanelRows * GemmPanelBytes(k));
  return panel + column / 2 * kPair + 2 * (row % kGemmPanelRows) + column % 2;
}

}  // namespace

void gemm_bf16_bf16_f32_ref_pack(MatView<const float> x, const int32_t* rows, RowRange range,
                                 std::byte* packed) noexcept {
  for (int64_t r = range.begin; r < GemmPaddedRows(range.end); ++r) {
    for (int64_t c = 0; c < GemmPaddedColumns(x.cols); ++c) {
      const bool inside = r < range.end && c < x.cols;
      *PackedAt(packed, x.cols, r, c) = inside ? ToBf16(x.Row(rows == nullptr ? r : rows[r])[c]) : uint16_t{0};
    }
  }
}

void gemm_bf16_bf16_f32_ref_pack_transposed(MatView<const float> ht, int64_t k_begin, int64_t k,
                                            std::byte* packed) noexcept {
  const int64_t k_end = k_begin + ht.rows == k ? GemmPaddedColumns(k) : k_begin + ht.rows;
  for (int64_t r = 0; r < GemmPaddedRows(ht.cols); ++r) {
    for (int64_t c = k_begin; c < k_end; ++c) {
      const bool inside = r < ht.cols && c < k;
      *PackedAt(packed, k, r, c) = inside ? ToBf16(ht.Row(c - k_begin)[r]) : uint16_t{0};
    }
  }
}

void gemm_bf16_bf16_f32_ref_fill_tile(const FillArgs& args) noexcept {
  const quant::QuantView& w = *args.weights;
  const int64_t padded = GemmPaddedColumns(w.cols), term = kGemmTileRows * padded;
  for (int64_t r = args.rows.begin; r < args.rows.end; ++r) {
    float* row = reinterpret_cast<float*>(args.tile) + (args.first_row + r - args.rows.begin) * padded;
    if (args.decode->slice != nullptr) {
      args.decode->slice(w, r, 0, w.cols, row);
    } else {
      args.decode->fn(w.Row(r), w.cols, row);
    }
    for (int64_t c = 0; c < padded; ++c) {
      const float value = c < w.cols ? row[c] : 0.0f, rounded = quant::Bf16ToF32(ToBf16(value));
      row[c] = rounded;
      if (args.terms == 2) row[term + c] = quant::Bf16ToF32(ToBf16(value - rounded));
    }
  }
}

void gemm_bf16_bf16_f32_ref_multiply(const GemmArgs& args) noexcept {
  const int64_t padded = GemmPaddedColumns(args.k);
  for (int64_t m = 0; m < GemmPaddedRows(args.rows); ++m) {
    const auto* panel = reinterpret_cast<const uint16_t*>(args.packed + m / kGemmPanelRows * GemmPanelBytes(args.k));
    for (int64_t j = 0; j < args.n; ++j) {
      if (m >= args.rows) {  // padding: whatever it holds, computing it would cost as much as a row
        args.yt[j * args.yt_stride + m] = 0;
        continue;
      }
      const float* w = reinterpret_cast<const float*>(args.tile) + j * padded;
      const uint16_t* x = panel + 2 * (m % kGemmPanelRows);
      float y = 0;
      for (int t = 0; t < args.terms; ++t) y = AddProducts(y, w + t * kGemmTileRows * padded, x, padded);
      args.yt[j * args.yt_stride + m] = y;
    }
  }
}

void gemm_bf16_bf16_f32_ref_fill_multiply(const FillArgs* parts, int count, const GemmArgs& args) noexcept {
  for (int i = 0; i < count; ++i) gemm_bf16_bf16_f32_ref_fill_tile(parts[i]);
  gemm_bf16_bf16_f32_ref_multiply(args);
}

void gemm_bf16_bf16_f32_ref_transpose_store(const TransposeArgs& args) noexcept {
  for (int64_t m = 0; m < args.rows; ++m) {
    for (int64_t j = 0; j < args.n; ++j) {
      float v = args.yt[j * args.yt_stride + m] * args.scale;
      if (args.bias != nullptr) v += args.bias[j];
      args.y[m * args.y_stride + j] = v;
    }
  }
}

}  // namespace bellhop::kernels
