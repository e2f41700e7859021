#include "plan/placement.h"

#include <algorithm>

namespace bellhop::plan {

Placement Placement::AllCold(const std::vector<int32_t>& experts_per_layer) {
  Placement placement;
  for (const int32_t experts : experts_per_layer) {
    placement.slots_.emplace_back(static_cast<size_t>(experts), SlotId());
  }
  return placement;
}

int32_t Placement::resident(LayerId layer) const {
  const auto& slots = slots_[layer.index()];
  return static_cast<int32_t>(std::count_if(slots.begin(), slots.end(), [](SlotId s) { return s.valid(); }));
}

int32_t Placement::resident() const {
  int32_t sum = 0;
  for (int32_t l = 0; l < layers(); ++l) sum += resident(LayerId(l));
  return sum;
}

int32_t Placement::total() const {
  int32_t sum = 0;
  for (int32_t l = 0; l < layers(); ++l) sum += experts(LayerId(l));
  return sum;
}

}  // namespace bellhop::plan
