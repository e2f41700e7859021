// Rotary position embedding: frequencies of an architecture and the cos/sin table of one step.
#pragma once

#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"
#include "model/spec.h"

namespace bellhop::model {

// Applies linear or YaRN scaling, or per-pair divisors (`factors`, Llama-3 style; empty: none) to base^(-2j/d).
// kUnsupported for scaling kinds that are not implemented; kCorrupt for impossible values.
Result<RopeSpec> MakeRope(RopeKind kind, const manifest::RopeHparams& rope, double base,
                          const std::vector<float>& factors);

// cos_sin[2j], cos_sin[2j+1] for every pair j of one position; angles are computed in double.
void FillRopeRow(const RopeSpec& rope, int32_t position, float* cos_sin);

}  // namespace bellhop::model
