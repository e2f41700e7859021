// Views of a manifest's tensors where they lie in the mapped file.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"
#include "quant/quant_view.h"

namespace bellhop::store {

// Rows [row_begin, row_begin + rows) of a tensor seen as a matrix [rows(), dims[0]]; rows = -1: all that follow.
// kCorrupt names the tensor when the range does not fit; kUnsupported when its format cannot hold weights.
Result<quant::QuantView> MatrixView(const manifest::Tensor& tensor, int64_t row_begin = 0, int64_t rows = -1);

// A small tensor (norm weight, bias, sinks) decoded to f32. kCorrupt when it has not exactly `elements` elements.
Result<std::vector<float>> DecodeSmall(const manifest::Tensor& tensor, uint64_t elements);

}  // namespace bellhop::store
