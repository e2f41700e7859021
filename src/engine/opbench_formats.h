// The weight formats of `bellhop opbench` by name: GGUF types, and planar ONNX ones with their scale group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "quant/planar.h"

namespace bellhop::engine {

struct OpbenchFormat {
  std::string name;  // "q4_0", "int4_b32", "int4_b128_zp"
  quant::WeightFormat format = quant::WeightFormat::kF32;
  // Planar formats alone.
  int32_t group = 0;  // columns per scale
  quant::ScaleType scale_type = quant::ScaleType::kNone;
  bool zero_points = false;  // a plane of its own instead of the implicit zero point
  // Came from "all", "gguf" or "onnx": left out when it cannot hold the shape, where a format asked for by name is an
  // error.
  bool from_list = false;

  quant::MatrixSpec Matrix(int64_t rows, int64_t cols) const;
};

// "all", "gguf" and "onnx" stand for lists; a format that comes twice counts once. kInvalidArgument says what there is.
Result<std::vector<OpbenchFormat>> ParseOpbenchFormats(const std::vector<std::string>& names);

}  // namespace bellhop::engine
