// Published figures of the system that this one set out to beat: the QMoE operators of ONNX Runtime with its offload
// of experts, one layer on an H200 (bf16, CUDA 13, hidden 2560, inner 640, 512 experts, 10 of a row, uniform routes).
#pragma once

#include <optional>

#include "engine/opbench_gpu.h"

namespace bellhop::engine {

// Milliseconds of a layer; none: nothing was published for such a case.
std::optional<double> SeedLayerMs(const GpuOpbenchCase& test);

}  // namespace bellhop::engine
