// Prompt-class products: a tile of weight rows is decoded once and multiplied with many activation rows.
//
// Every ISA gives the same bits, AMX included, because all of them compute what TDPBF16PS computes. Weights are their
// decoded values rounded to bf16, activations are rounded to bf16; columns are padded with zeros to whole groups of 32.
// A result is, over the groups in ascending order and with the pairs of a group in ascending order:
//
//     y = +0
//     each group:  e = o = +0
//                  each pair j:  e = fma(w[2j], x[2j], e);  o = fma(w[2j+1], x[2j+1], o)
//                  y = y + (e + o)
//
// in binary32, round to nearest even, with denormal operands and results taken as zeros of their sign. Rounding to bf16
// is to nearest even, binary32 denormals become zeros of their sign, a NaN becomes a quiet NaN.
//
// A weight may be two bf16 terms instead of one, its rounded value and the rounded rest (16 bits of precision): then
// the groups of the rests follow those of the rounded values in the same sum y, and each activation is read twice.
//
// Products come transposed, yt[weight row][activation row]: the tile is the left operand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/span.h"
#include "quant/format.h"
#include "quant/quant_view.h"
#include "sys/cpu_features.h"

namespace bellhop::kernels {

// Decodes `count` elements (whole blocks) to f32: the same values as quant::DecodeRow (compared with ==).
using RowDecodeFn = void (*)(const std::byte* src, int64_t count, float* dst) noexcept;
// The same for a row whose bytes are not contiguous (planar formats): columns [begin, begin + count) of row `row`,
// without the matrix's global scale. `begin` is a multiple of 128; `count` is one too, or reaches the last column.
using SliceDecodeFn = void (*)(const quant::QuantView& weights, int64_t row, int64_t begin, int64_t count,
                               float* dst) noexcept;
struct RowDecodeKernel {
  const char* name;
  sys::Isa isa;
  quant::WeightFormat format;
  RowDecodeFn fn;                 // null for planar formats
  SliceDecodeFn slice = nullptr;  // planar formats alone
};
std::span<const RowDecodeKernel> AllRowDecodeKernels();
const RowDecodeKernel* SelectRowDecode(quant::WeightFormat format, const sys::CpuCaps& caps);

inline constexpr int64_t kGemmTileRows = 32;   // weight rows of a tile, at most
inline constexpr int64_t kGemmPanelRows = 16;  // activation rows of a packed panel
inline constexpr int64_t kGemmGroup = 32;      // columns of a group
inline constexpr int kMaxTileParts = 2;        // matrices whose rows make up a tile

constexpr int64_t GemmPaddedColumns(int64_t k) { return (k + kGemmGroup - 1) / kGemmGroup * kGemmGroup; }
constexpr int64_t GemmPaddedRows(int64_t rows) { return (rows + kGemmPanelRows - 1) / kGemmPanelRows * kGemmPanelRows; }
// Packed activations: panels of 16 rows, each [column pairs][16 rows][2] bf16, zero beyond the last row and column.
// The layout is the same for all ISAs; panel p begins at p * GemmPanelBytes(k). 64-byte aligned.
constexpr int64_t GemmPanelBytes(int64_t k) { return GemmPaddedColumns(k) * kGemmPanelRows * 2; }
constexpr int64_t GemmPackedBytes(int64_t rows, int64_t k) {
  return GemmPaddedRows(rows) / kGemmPanelRows * GemmPanelBytes(k);
}
// Room for one decoded tile of any kernel: f32 rows a cache line apart, so that they do not share the sets of a cache.
// 64-byte aligned.
constexpr int64_t GemmTileStride(int64_t k) { return GemmPaddedColumns(k) + 16; }
constexpr int64_t GemmTileBytes(int64_t k, int terms) {
  return terms * kGemmTileRows * GemmTileStride(k) * static_cast<int64_t>(sizeof(float));
}

// yt[j][m] = product of tile row j and packed row m, for j < n and m < rows. Columns up to GemmPaddedRows(rows) of yt
// are written too.
struct GemmArgs {
  const std::byte* tile = nullptr;
  int terms = 1;  // of a weight, as the tile was filled: 1 or 2
  int64_t n = 0;  // 1 .. kGemmTileRows
  const std::byte* packed = nullptr;
  int64_t rows = 0;
  int64_t k = 0;  // unpadded columns
  float* yt = nullptr;
  int64_t yt_stride = 0;  // >= GemmPaddedRows(rows), a multiple of 16
};

// y[m][j] = yt[j][m] * scale + bias[j] for j < n and m < rows; the product and the sum round separately.
struct TransposeArgs {
  const float* yt = nullptr;
  int64_t yt_stride = 0;
  int64_t n = 0, rows = 0;
  float scale = 1;
  const float* bias = nullptr;  // [n]; null: nothing is added
  float* y = nullptr;           // element (0, 0)
  int64_t y_stride = 0;
};

// Rows `rows` of the weights become rows first_row, first_row + 1, ... of a tile.
struct FillArgs {
  const RowDecodeKernel* decode = nullptr;
  const quant::QuantView* weights = nullptr;
  int terms = 1;          // of a weight: 1 or 2
  RowRange rows;          // of the weights
  int64_t first_row = 0;  // of the tile
  std::byte* tile = nullptr;
  int64_t ahead = 4096;  // the code bytes this far ahead of those read are prefetched
};

struct GemmKernel {
  const char* name;
  sys::Isa isa;
  // Rows [range.begin, range.end) of the packed matrix; packed row i is row rows[i] of x, or i when rows is null.
  // range.begin is a multiple of 16; a last panel is filled up with zeros.
  void (*pack)(MatView<const float> x, const int32_t* rows, RowRange range, std::byte* packed) noexcept;
  // Columns [k_begin, k_begin + ht.rows) of the packed matrix of k columns from their transpose, ht [columns][rows]:
  // what fc1 leaves becomes the input of fc2. k_begin and ht.rows are even, unless the last column is included: then
  // the padding is written as well. Rows that pad the last panel become zeros.
  void (*pack_transposed)(MatView<const float> ht, int64_t k_begin, int64_t k, std::byte* packed) noexcept;
  void (*fill_tile)(const FillArgs& args) noexcept;
  void (*multiply)(const GemmArgs& args) noexcept;
  // fill_tile of `count` <= kMaxTileParts parts, which are all rows of args.tile, then multiply, with the same result.
  // A kernel may do both a block of columns at a time; the tile's contents are not to be used afterwards.
  void (*fill_multiply)(const FillArgs* parts, int count, const GemmArgs& args) noexcept;
  void (*transpose_store)(const TransposeArgs& args) noexcept;
};
std::span<const GemmKernel> AllGemmKernels();
const GemmKernel* SelectGemm(const sys::CpuCaps& caps);

}  // namespace bellhop::kernels
