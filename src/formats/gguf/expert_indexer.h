// Finds the matrices of routed experts by the role that their names give them, and checks their shapes against the
// hyper-parameters and each other.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"

namespace bellhop::formats {

// Layers with experts, ascending. Known forms: gate/up/down stacks, a merged gate_up stack, one tensor per expert.
// kNotFound names the tensor that a layer with other expert tensors lacks, and the architecture; kCorrupt names the
// tensor whose shape does not fit, kUnsupported one whose format cannot hold weights.
Result<std::vector<manifest::ExpertLayer>> IndexExperts(const std::vector<manifest::Tensor>& tensors,
                                                        const manifest::Hparams& hparams,
                                                        std::string_view architecture);

}  // namespace bellhop::formats
