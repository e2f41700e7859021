// How long the parts of a step take on the GPU, for --timers.
#pragma once

#include <string>

#include "base/status.h"
#include "cuda/stream.h"
#include "model/gpu/gpu_layers.h"

namespace bellhop::model {

// Each part by itself for all layers, of a step of one row whose input is in place. A line for the user.
Result<std::string> TimeStepParts(const GpuLayers& layers, const cuda::Stream& stream);

}  // namespace bellhop::model
