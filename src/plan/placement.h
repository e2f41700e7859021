// Placement: which experts have a slot on the GPU. Immutable during a step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace bellhop::plan {

class Placement {
 public:
  Placement() = default;
  // Every expert cold. experts_per_layer[l] = 0 for layers without experts.
  static Placement AllCold(const std::vector<int32_t>& experts_per_layer);
  // residents[layer][slot]: the expert in it. Every expert exists and has one slot at most.
  static Placement FromSlots(const std::vector<int32_t>& experts_per_layer,
                             const std::vector<std::vector<ExpertId>>& residents);

  int32_t layers() const { return static_cast<int32_t>(slots_.size()); }
  // Negative: a miss.
  SlotId Slot(LayerId layer, ExpertId expert) const { return slots_[layer.index()][expert.index()]; }
  // [experts]: slot or -1, as kernels read it.
  std::vector<int32_t> ExpertToSlot(LayerId layer) const;
  bool IsHit(LayerId layer, ExpertId expert) const { return Slot(layer, expert).valid(); }
  int32_t experts(LayerId layer) const { return static_cast<int32_t>(slots_[layer.index()].size()); }
  // Slots used in a layer and in all.
  int32_t resident(LayerId layer) const;
  int32_t resident() const;
  int32_t total() const;

 private:
  std::vector<std::vector<SlotId>> slots_;
};

}  // namespace bellhop::plan
