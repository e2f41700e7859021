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

Placement Placement::FromSlots(const std::vector<int32_t>& experts_per_layer,
                               const std::vector<std::vector<ExpertId>>& residents) {
  Placement placement = AllCold(experts_per_layer);
  for (size_t l = 0; l < residents.size(); ++l) {
    for (size_t s = 0; s < residents[l].size(); ++s) {
      placement.slots_[l][residents[l][s].index()] = SlotId(static_cast<int32_t>(s));
    }
  }
  return placement;
}

std::vector<int32_t> Placement::ExpertToSlot(LayerId layer) const {
  std::vector<int32_t> table;
  for (const SlotId slot : slots_[layer.index()]) table.push_back(slot.value);
  return table;
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
