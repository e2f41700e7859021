#include "store/tensor_view.h"

#include "quant/codec.h"

namespace bellhop::store {

Result<quant::QuantView> MatrixView(const manifest::Tensor& tensor, int64_t row_begin, int64_t rows) {
  const quant::FormatTraits& traits = quant::Traits(tensor.format);
  if (!traits.weights) {
    return Unsupported("tensor {}: format {} holds no weights of a matrix product; re-quantize the file", tensor.name,
                       traits.name);
  }
  const auto total = static_cast<int64_t>(tensor.rows());
  if (rows < 0) rows = total - row_begin;
  if (row_begin < 0 || rows < 0 || row_begin > total || rows > total - row_begin) {
    return Corrupt("tensor {}: rows {}..{} wanted, the tensor has {} (shape {})", tensor.name, row_begin,
                   row_begin + rows, total, tensor.ShapeString());
  }
  BELLHOP_TRY_ASSIGN(const uint64_t row_bytes, quant::RowBytes(tensor.format, tensor.dims[0]));
  quant::QuantView view;
  view.format = tensor.format;
  view.rows = rows;
  view.cols = static_cast<int64_t>(tensor.dims[0]);
  view.planes[0].row_bytes = static_cast<int64_t>(row_bytes);
  view.planes[0].data = tensor.data.data() + static_cast<uint64_t>(row_begin) * row_bytes;
  return view;
}

Result<std::vector<float>> DecodeSmall(const manifest::Tensor& tensor, uint64_t elements) {
  if (tensor.elements() != elements) {
    return Corrupt("tensor {}: shape {}, but {} elements are needed here", tensor.name, tensor.ShapeString(), elements);
  }
  if (!quant::Traits(tensor.format).weights) {
    return Unsupported("tensor {}: format {} cannot be read as numbers here; convert it to F32", tensor.name,
                       quant::Traits(tensor.format).name);
  }
  std::vector<float> values(elements);
  const auto cols = static_cast<int64_t>(tensor.dims[0]);
  BELLHOP_TRY_ASSIGN(const uint64_t row_bytes, quant::RowBytes(tensor.format, tensor.dims[0]));
  for (uint64_t r = 0; r < tensor.rows(); ++r) {
    quant::DecodeRow(tensor.format, tensor.data.data() + r * row_bytes, cols,
                     values.data() + r * static_cast<uint64_t>(cols));
  }
  return values;
}

}  // namespace bellhop::store
