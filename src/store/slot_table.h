// Which expert each GPU slot holds, and the tables by which steps find them. Bookkeeping alone: whoever copies bytes
// and launches steps tells it what has happened, and it says what is allowed (rule D5). One thread, the engine's.
//
// A slot's life: resident -> Evict, Publish -> draining until the steps that may read it have ended -> empty ->
// BeginFill, copy, FinishFill -> Publish -> resident. Steps see changes at a Publish only, all at once. There are two
// sets of tables; a step keeps the set it began with, so a Publish waits until no step uses the set that it will write.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"

namespace bellhop::store {

// What is in a slot. The generation counts the fills of the slot: the same expert filled again is another content.
struct SlotContent {
  LayerId layer;
  ExpertId expert;  // invalid: none
  uint32_t generation = 0;
  friend bool operator==(const SlotContent&, const SlotContent&) = default;
};

enum class SlotState : uint8_t {
  kEmpty,
  kFilling,   // a copy into it is in flight
  kFilled,    // complete, not published yet
  kResident,  // steps read it
  kEvicted,   // steps still read it; not any more after the next Publish
  kDraining,  // earlier steps may still read it
};

class SlotTable {
 public:
  // One layer: its experts, and for each slot the expert that is in it from the start (invalid: empty).
  struct Bank {
    int32_t experts = 0;
    std::vector<ExpertId> slots;
  };
  // kInvalidArgument when an expert does not exist or has two slots.
  static Result<std::unique_ptr<SlotTable>> Create(const std::vector<Bank>& banks);

  int32_t layers() const { return static_cast<int32_t>(layers_.size()); }
  int32_t slots(LayerId layer) const { return static_cast<int32_t>(layers_[layer.index()].slots.size()); }
  SlotState state(LayerId layer, SlotId slot) const { return At(layer, slot).state; }
  SlotContent content(LayerId layer, SlotId slot) const { return At(layer, slot).content; }

  // The placement of the next step: it counts Publish calls that changed something.
  uint64_t version() const { return version_; }
  // [experts]: slot or -1. Valid as long as a step that began with this version is in flight, or it is the current one.
  HostSpan<const int32_t> ExpertToSlot(LayerId layer) const {
    const std::vector<int32_t>& table = layers_[layer.index()].tables[active_];
    return {table.data(), table.size()};
  }

  // A step is launched: it uses the current placement until it ends. Steps end in the order in which they began.
  uint64_t BeginStep();
  // kInvalidArgument when it is not the oldest in flight.
  Status EndStep(uint64_t step);
  int32_t steps_in_flight() const { return static_cast<int32_t>(in_flight_.size()); }

  // Each is refused (kInvalidArgument, naming the slot) in another state than the one given.
  // kResident -> kEvicted.
  Status Evict(LayerId layer, SlotId slot);
  // kEmpty -> kFilling: the copy may start. The expert must not have, or be about to get, another slot of its layer.
  Status BeginFill(LayerId layer, SlotId slot, ExpertId expert);
  // kFilling -> kFilled (the copy has completed, in stream order before the next step), or kEmpty when it failed.
  Status FinishFill(LayerId layer, SlotId slot, bool copied);

  // Between two steps. True: the next step sees all evictions and fills so far (also when there was none). False: a
  // step in flight still uses the set of tables that would be written; again after an EndStep.
  bool Publish();

  // Debug mode: a slot's bytes must be those that were copied in.
  static uint64_t Checksum(HostSpan<const std::byte> bytes);
  // Of what is being or has been copied into the slot.
  void SetChecksum(LayerId layer, SlotId slot, uint64_t checksum);
  // Compares every slot that steps may read and that has a checksum with what `read` says of its bytes. kCorrupt names
  // the first one that differs.
  Status Verify(const std::function<Result<uint64_t>(LayerId, SlotId)>& read) const;

 private:
  struct Slot {
    SlotState state = SlotState::kEmpty;
    SlotContent content;
    uint64_t last_reader = 0;  // kDraining: the last step that may read it
    bool has_checksum = false;
    uint64_t checksum = 0;
  };
  struct Layer {
    std::vector<Slot> slots;
    std::vector<int32_t> tables[2];  // [experts]
  };
  struct Step {
    uint64_t number = 0;
    int set = 0;
  };

  SlotTable() = default;
  const Slot& At(LayerId layer, SlotId slot) const { return layers_[layer.index()].slots[slot.index()]; }
  Result<Slot*> Find(LayerId layer, SlotId slot, SlotState expected, const char* action);
  void FinishDrains();
  void WriteTables(int set);

  std::vector<Layer> layers_;
  std::vector<Step> in_flight_;  // few: a step is launched while another runs, at most
  uint64_t last_step_ = 0;
  uint64_t version_ = 1;
  int active_ = 0;
  bool changed_ = false;
};

}  // namespace bellhop::store
