#include "moe/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bellhop::moe {
namespace {

constexpr float kMinWeightSum = 6.103515625e-5f;  // 2^-14, as the reference implementations divide
constexpr float kNever = -std::numeric_limits<float>::infinity();

// Sets the scores of experts outside the best groups to -Inf.
void RestrictToGroups(const RouterParams& params, float* scores, float* group_scores) {
  const int32_t per_group = params.experts / params.groups;
  for (int32_t g = 0; g < params.groups; ++g) {
    float best = kNever, second = kNever;
    for (int32_t e = g * per_group; e < (g + 1) * per_group; ++e) {
      if (scores[e] > best) {
        second = best;
        best = scores[e];
      } else if (scores[e] > second) {
        second = scores[e];
      }
    }
    group_scores[g] = per_group > 1 ? best + second : best;
  }
  for (int32_t g = 0; g < params.groups; ++g) {
    int32_t better = 0;  // groups ranked before g; ties go to the lower index
    for (int32_t other = 0; other < params.groups; ++other) {
      better += group_scores[other] > group_scores[g] || (group_scores[other] == group_scores[g] && other < g);
    }
    if (better >= params.groups_used) {
      std::fill(scores + g * per_group, scores + (g + 1) * per_group, kNever);
    }
  }
}

// Insertion into a short sorted list: k is small and the order (score, then id) is strict.
void SelectTop(const float* scores, int32_t experts, int32_t used, int32_t* ids) {
  int32_t filled = 0;
  for (int32_t e = 0; e < experts; ++e) {
    if (filled == used && !(scores[e] > scores[ids[filled - 1]])) continue;
    int32_t at = filled < used ? filled++ : used - 1;
    while (at > 0 && scores[e] > scores[ids[at - 1]]) {
      ids[at] = ids[at - 1];
      --at;
    }
    ids[at] = e;
  }
}

}  // namespace

bool RouteRow(const RouterParams& params, const kernels::VecOps& ops, float* logits, float* scratch, int32_t* ids,
              float* weights) {
  const int32_t experts = params.experts, used = params.used;
  float* probabilities = logits;
  // Softmax makes a row with a NaN or +Inf all NaN.
  if (params.gating == Gating::kSoftmax) ops.softmax(probabilities, experts, nullptr);
  if (params.gating == Gating::kSigmoid) ops.sigmoid(probabilities, experts, probabilities);

  bool clean = true;
  float* scores = scratch;
  for (int32_t e = 0; e < experts; ++e) {
    scores[e] = probabilities[e];
    if (params.selection_bias != nullptr) scores[e] += params.selection_bias[e];
    if (!std::isnan(scores[e])) continue;
    scores[e] = kNever;
    clean = false;
  }
  if (params.groups > 1) RestrictToGroups(params, scores, scratch + experts);
  SelectTop(scores, experts, used, ids);

  for (int32_t i = 0; i < used; ++i) weights[i] = probabilities[ids[i]];
  if (params.gating == Gating::kSoftmaxSelected) ops.softmax(weights, used, nullptr);
  if (params.normalise) {
    float sum = 0;
    for (int32_t i = 0; i < used; ++i) sum += weights[i];
    const float divisor = std::max(sum, kMinWeightSum);
    for (int32_t i = 0; i < used; ++i) weights[i] /= divisor;
  }
  if (params.weights_scale != 0 && params.weights_scale != 1) {
    for (int32_t i = 0; i < used; ++i) weights[i] *= params.weights_scale;
  }
  for (int32_t i = 0; i < used; ++i) clean = clean && std::isfinite(weights[i]);
  if (!clean) std::fill(weights, weights + used, 0.0f);
  return clean;
}

}  // namespace bellhop::moe
