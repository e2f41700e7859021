// What kernels read: weight matrices in the layout of the GPU, and activations as terms for the tensor cores. Shared by
// host and device code; no CUDA header.
//
// Tiles. A matrix is cut into tiles of 16 output rows, a tile into chunks of some columns (TileGeometry). A chunk holds
// what a warp needs for its mma fragments, so that every lane loads 16 bytes and a warp a contiguous piece: lane
// 4 * g + t has rows g and g + 8, and of each group of 32 columns the elements 4t .. 4t+3 and 16+4t .. 16+4t+3. Rows
// and columns beyond the matrix are zero. kFile: GGUF rows as they lie.
//
// Terms. An f32 activation is the sum of two or three bf16 numbers (numerics class decode). They are columns of the n8
// operand, so their products are added in f32 like those of any other column.
#pragma once

#include <cstdint>

#include "quant/weight_format.h"

namespace bellhop::kernels {

enum class MatrixLayout : uint8_t { kTiles, kFile };

inline constexpr int kTileRows = 16;
inline constexpr int kTermGroup = 32;     // columns within which terms are permuted
inline constexpr int kTermPadding = 256;  // columns of a row of terms: a multiple of this, zeros at the end
inline constexpr int kMaxStepRows = 32;

struct TileGeometry {
  int chunk_cols = 0;   // 0: the format has no tiles, it is read in file layout
  int chunk_bytes = 0;  // of 16 rows
};

constexpr TileGeometry Tiles(quant::WeightFormat format) {
  using quant::WeightFormat;
  switch (format) {
    case WeightFormat::kF32: return {32, 2048};
    case WeightFormat::kF16:
    case WeightFormat::kBF16: return {32, 1024};
    case WeightFormat::kQ4_0: return {128, 1152};
    case WeightFormat::kQ8_0: return {64, 1088};
    case WeightFormat::kMXFP4: return {128, 1088};
    case WeightFormat::kQ4K: return {256, 2304};
    case WeightFormat::kQ6K: return {256, 3360};
    case WeightFormat::kIQ3XXS: return {256, 1568};
    case WeightFormat::kInt3: return {128, 832};
    default: return {};
  }
}

// The format of the tiles that a matrix of `format` becomes.
constexpr quant::WeightFormat TileFormatOf(quant::WeightFormat format) {
  using quant::WeightFormat;
  switch (format) {
    case WeightFormat::kInt4: return WeightFormat::kQ4_0;
    case WeightFormat::kInt8: return WeightFormat::kQ8_0;
    case WeightFormat::kMxfp4Planar: return WeightFormat::kMXFP4;
    default: return format;
  }
}

// Bits of a code in planar rows that can become tiles; 0: other formats.
constexpr int PlanarBits(quant::WeightFormat format) {
  using quant::WeightFormat;
  switch (format) {
    case WeightFormat::kInt4:
    case WeightFormat::kMxfp4Planar: return 4;
    case WeightFormat::kInt3: return 3;
    case WeightFormat::kInt8: return 8;
    default: return 0;
  }
}
// Columns that share a scale in the tiles: scale groups must be multiples.
constexpr int TileScaleColumns(quant::WeightFormat format) { return format == quant::WeightFormat::kInt3 ? 64 : 32; }

// A planar matrix where it lies, beside its codes (DeviceMatrix::row_bytes): f16 scales, bytes of MXFP4.
struct PlanarRows {
  quant::WeightFormat format = quant::WeightFormat::kF32;
  int32_t group = 0;  // columns per scale; 0: no planar matrix
  int64_t scale_row_bytes = 0;
  constexpr int scale_bytes() const { return format == quant::WeightFormat::kMxfp4Planar ? 1 : 2; }
};

struct DeviceMatrix {
  const uint8_t* data = nullptr;
  quant::WeightFormat format = quant::WeightFormat::kF32;
  MatrixLayout layout = MatrixLayout::kTiles;
  int32_t rows = 0, cols = 0;
  int32_t chunks = 0;           // of a tile, kTiles
  int64_t row_bytes = 0;        // kFile; of the host's rows, which fetches read
  PlanarRows planar;            // of the host
  const float* bias = nullptr;  // [rows], device memory; null: none
  float scale = 1;              // on the product, before the bias

  constexpr int32_t tiles() const { return (rows + kTileRows - 1) / kTileRows; }
};

// Bytes of a matrix of rows x cols in the layout that Tiles() gives, file_row_bytes a row otherwise.
constexpr uint64_t DeviceMatrixBytes(quant::WeightFormat format, int64_t rows, int64_t cols, int64_t file_row_bytes) {
  const TileGeometry tiles = Tiles(format);
  if (tiles.chunk_cols == 0) return static_cast<uint64_t>(rows * file_row_bytes);
  const int64_t row_tiles = (rows + kTileRows - 1) / kTileRows;
  const int64_t chunks = (cols + tiles.chunk_cols - 1) / tiles.chunk_cols;
  return static_cast<uint64_t>(row_tiles * chunks * tiles.chunk_bytes);
}

// Activations of some rows. `terms` bf16 numbers of each element: row m, term i, element e is at
// data[(m * terms + i) * stride + TermPosition(e)].
struct TermRows {
  uint16_t* data = nullptr;
  float* sums = nullptr;  // [row][stride / 16]: sums of 16 elements each, exact to f32 rounding
  int32_t stride = 0;     // columns, a multiple of kTermPadding
  int32_t terms = 2;      // 2 or 3
  // Rows of prompts: [row][stride / 256][2][8], what LaunchGroupSums makes of `sums`.
  uint16_t* group_sums = nullptr;
};

// Within a group of 32, what lane t of a quad needs is contiguous: four elements of each half.
constexpr int32_t TermPosition(int32_t e) {
  const int32_t in_group = e % kTermGroup;
  return e - in_group + in_group % 16 / 4 * 8 + in_group / 16 * 4 + in_group % 4;
}

// The same of rows of prompts: of each half group, what the lanes of a quad need for k 0 .. 7 of the tensor cores'
// operand lies side by side, then what they need for k 8 .. 15. So 16 bytes are a row of a matrix of 8 x 8 halves.
constexpr int32_t PromptPosition(int32_t e) { return e / 16 * 16 + e % 4 / 2 * 8 + e % 16 / 4 * 2 + e % 2; }

}  // namespace bellhop::kernels
