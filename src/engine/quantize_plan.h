// Decides which format every tensor of a file gets: names, options and shapes in, formats and notes out. Reads no
// weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/quantize.h"
#include "formats/gguf/gguf_model.h"
#include "quant/format.h"

namespace bellhop::engine {

enum class TensorRole : uint8_t {
  kKept,    // norms, biases, routers, 1-D tensors, tables: never re-encoded
  kExpert,  // matrices of routed experts
  kOutput,  // embedding and head
  kDense,   // every other matrix
};
// By the tensor's name, dimensions and format alone, so that unknown architectures work.
TensorRole RoleOf(const manifest::Tensor& tensor);

// The format itself when rows of `cols` are whole blocks, else the first fallback that fits (docs/formats.md).
quant::WeightFormat FormatForRow(quant::WeightFormat wanted, uint64_t cols, quant::WeightFormat source);

struct TensorPlan {
  const manifest::Tensor* tensor = nullptr;  // of the model that was planned
  quant::WeightFormat format = quant::WeightFormat::kF32;
  bool converts() const { return format != tensor->format; }
};

struct QuantizePlan {
  quant::WeightFormat main_format = quant::WeightFormat::kF32;  // QuantizeOptions::type
  std::vector<TensorPlan> tensors;                              // in the order of the model
  std::vector<std::string> notes;
};

Result<QuantizePlan> PlanQuantize(const formats::GgufModel& model, const QuantizeOptions& options);

// general.file_type for a file whose matrices mostly have this format; -1: the enumeration has no such value.
int32_t FileTypeOf(quant::WeightFormat format);

}  // namespace bellhop::engine
