// The router: scores to routes. Ties go to the lowest expert id.
#pragma once

#include <cstdint>

#include "kernels/vec_ops.h"

namespace bellhop::moe {

enum class Gating : uint8_t {
  kSoftmax,          // probabilities over all experts, then the k largest
  kSigmoid,          // independent probabilities
  kSoftmaxSelected,  // the k largest scores, then softmax over those
};

struct RouterParams {
  Gating gating = Gating::kSoftmax;
  int32_t experts = 0;
  int32_t used = 0;                       // k, 1 <= k <= experts
  bool normalise = false;                 // weights divided by their sum (at least 2^-14)
  float weights_scale = 0;                // factor on the weights; 0 and 1: none
  const float* selection_bias = nullptr;  // [experts], added for the selection only; null: none
  int32_t groups = 1;       // > 1: only experts of the best `groups_used` groups can be chosen; a group's score is
  int32_t groups_used = 1;  // the sum of its two best selection scores
};

// Routes of one row. `logits` [experts] is used as scratch; `scratch` [2 * experts] too. Writes `used` distinct ids,
// highest selection score first, and their weights. False when a score or a chosen weight is not a number (the row's
// request fails): the ids are still distinct and in range, and the weights are 0.
bool RouteRow(const RouterParams& params, const kernels::VecOps& ops, float* logits, float* scratch, int32_t* ids,
              float* weights);

}  // namespace bellhop::moe
