// How often a row chooses each expert: what placement and prediction go by. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"
#include "plan/expert_profile.h"

namespace bellhop::plan {

// The experts of one layer; a layer without has none.
struct ExpertLayerInfo {
  int32_t used = 0;                    // routes per row
  std::vector<uint64_t> expert_bytes;  // [experts], as in the file

  int32_t experts() const { return static_cast<int32_t>(expert_bytes.size()); }
};

// [layers], from the tensors of the model.
std::vector<ExpertLayerInfo> ExpertLayers(const manifest::Manifest& manifest);

// [layer][expert]: expected routes of one row, between 0 and 1: an expert is chosen once at most. They sum to `used` in
// each layer.
struct Popularity {
  std::vector<std::vector<double>> routes;
  // Nothing is known: every expert alike.
  bool even = false;
};

Popularity EvenPopularity(const std::vector<ExpertLayerInfo>& layers);

// From measured counts [layer][expert]. Layers without any count are even. kInvalidArgument for counts of another
// shape.
Result<Popularity> PopularityFromCounts(const std::vector<ExpertLayerInfo>& layers,
                                        const std::vector<std::vector<uint64_t>>& counts);

// A profile holds the order of experts and no counts. In a layer whose experts are spread evenly over the order, the
// first part f of them is taken to get the share f^kRankedShareExponent of the routes, which gives hit
// rates of 58, 76 and 89 % for 25, 50 and 75 % of the experts in slots (docs/decisions/0011-doorbell-and-placement.md).
// Pairs that the profile does not list come last. kInvalidArgument for a profile of another model.
inline constexpr double kRankedShareExponent = 0.393;
Result<Popularity> PopularityFromProfile(const std::vector<ExpertLayerInfo>& layers, const ExpertProfile& profile);

}  // namespace bellhop::plan
