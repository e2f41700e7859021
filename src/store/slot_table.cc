#include "store/slot_table.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace bellhop::store {
namespace {

std::string_view StateName(SlotState state) {
  switch (state) {
    case SlotState::kEmpty: return "empty";
    case SlotState::kFilling: return "being filled";
    case SlotState::kFilled: return "filled and not published";
    case SlotState::kResident: return "resident";
    case SlotState::kEvicted: return "evicted and not published";
    case SlotState::kDraining: return "read by steps in flight";
  }
  return "unknown";
}

}  // namespace

Result<std::unique_ptr<SlotTable>> SlotTable::Create(const std::vector<Bank>& banks) {
  auto table = std::unique_ptr<SlotTable>(new SlotTable());
  for (size_t l = 0; l < banks.size(); ++l) {
    const Bank& bank = banks[l];
    Layer layer;
    for (auto& set : layer.tables) set.assign(static_cast<size_t>(std::max(bank.experts, 0)), -1);
    for (size_t s = 0; s < bank.slots.size(); ++s) {
      const ExpertId expert = bank.slots[s];
      Slot slot{.content = {.layer = LayerId(static_cast<int32_t>(l)), .expert = expert}};
      if (expert.valid()) {
        if (expert.value >= bank.experts) {
          return InvalidArgument("layer {}, slot {}: expert {} does not exist, the layer has {}", l, s, expert.value,
                                 bank.experts);
        }
        if (std::count(bank.slots.begin(), bank.slots.end(), expert) > 1) {
          return InvalidArgument("layer {}: expert {} has more than one slot", l, expert.value);
        }
        slot.state = SlotState::kResident;
        slot.content.generation = 1;
      }
      layer.slots.push_back(slot);
    }
    table->layers_.push_back(std::move(layer));
  }
  table->in_flight_.reserve(8);
  table->WriteTables(0);
  table->WriteTables(1);
  return table;
}

void SlotTable::WriteTables(int set) {
  for (Layer& layer : layers_) {
    std::vector<int32_t>& table = layer.tables[set];
    std::fill(table.begin(), table.end(), -1);
    for (size_t s = 0; s < layer.slots.size(); ++s) {
      const Slot& slot = layer.slots[s];
      if (slot.state == SlotState::kResident) table[slot.content.expert.index()] = static_cast<int32_t>(s);
    }
  }
}

uint64_t SlotTable::BeginStep() {
  in_flight_.push_back({++last_step_, active_});
  return last_step_;
}

Status SlotTable::EndStep(uint64_t step) {
  if (in_flight_.empty() || in_flight_.front().number != step) {
    return InvalidArgument("step {} is not the oldest in flight ({}); steps end in the order in which they began", step,
                           in_flight_.empty() ? 0 : in_flight_.front().number);
  }
  in_flight_.erase(in_flight_.begin());
  FinishDrains();
  return Status();
}

void SlotTable::FinishDrains() {
  const uint64_t oldest = in_flight_.empty() ? UINT64_MAX : in_flight_.front().number;
  for (Layer& layer : layers_) {
    for (Slot& slot : layer.slots) {
      if (slot.state != SlotState::kDraining || slot.last_reader >= oldest) continue;
      slot.state = SlotState::kEmpty;
      slot.content.expert = ExpertId();
      slot.has_checksum = false;
    }
  }
}

Result<SlotTable::Slot*> SlotTable::Find(LayerId layer, SlotId slot, SlotState expected, const char* action) {
  if (!layer.valid() || layer.value >= layers() || !slot.valid() || slot.value >= slots(layer)) {
    return InvalidArgument("{}: layer {} has no slot {}", action, layer.value, slot.value);
  }
  Slot& found = layers_[layer.index()].slots[slot.index()];
  if (found.state != expected) {
    return InvalidArgument("{}: slot {} of layer {} is {}, not {}", action, slot.value, layer.value,
                           StateName(found.state), StateName(expected));
  }
  return &found;
}

Status SlotTable::Evict(LayerId layer, SlotId slot) {
  BELLHOP_TRY_ASSIGN(Slot * found, Find(layer, slot, SlotState::kResident, "evict"));
  found->state = SlotState::kEvicted;
  changed_ = true;
  return Status();
}

Status SlotTable::BeginFill(LayerId layer, SlotId slot, ExpertId expert) {
  BELLHOP_TRY_ASSIGN(Slot * found, Find(layer, slot, SlotState::kEmpty, "fill"));
  const Layer& bank = layers_[layer.index()];
  if (!expert.valid() || expert.index() >= bank.tables[0].size()) {
    return InvalidArgument("fill: layer {} has no expert {}", layer.value, expert.value);
  }
  for (const Slot& other : bank.slots) {
    const bool taken =
        other.state == SlotState::kFilling || other.state == SlotState::kFilled || other.state == SlotState::kResident;
    if (taken && other.content.expert == expert) {
      return InvalidArgument("fill: expert {} of layer {} has a slot already", expert.value, layer.value);
    }
  }
  found->state = SlotState::kFilling;
  found->content.expert = expert;
  ++found->content.generation;
  found->has_checksum = false;
  return Status();
}

Status SlotTable::FinishFill(LayerId layer, SlotId slot, bool copied) {
  BELLHOP_TRY_ASSIGN(Slot * found, Find(layer, slot, SlotState::kFilling, "finish a fill"));
  if (copied) {
    found->state = SlotState::kFilled;
    changed_ = true;
  } else {
    found->state = SlotState::kEmpty;
    found->content.expert = ExpertId();
    found->has_checksum = false;
  }
  return Status();
}

bool SlotTable::Publish() {
  if (!changed_) return true;
  const int next = 1 - active_;
  for (const Step& step : in_flight_) {
    if (step.set == next) return false;
  }
  for (Layer& layer : layers_) {
    for (Slot& slot : layer.slots) {
      if (slot.state == SlotState::kFilled) slot.state = SlotState::kResident;
      if (slot.state != SlotState::kEvicted) continue;
      slot.state = SlotState::kDraining;
      slot.last_reader = last_step_;
    }
  }
  WriteTables(next);
  active_ = next;
  ++version_;
  changed_ = false;
  FinishDrains();
  return true;
}

// FNV-1a over words of eight bytes: every byte and its place count.
uint64_t SlotTable::Checksum(HostSpan<const std::byte> bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t hash = 0xcbf29ce484222325;
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;  // high bytes reach the low ones
  }
  for (; at < bytes.size(); ++at) hash = (hash ^ static_cast<uint64_t>(bytes[at])) * kPrime;
  return hash ^ bytes.size();
}

void SlotTable::SetChecksum(LayerId layer, SlotId slot, uint64_t checksum) {
  Slot& found = layers_[layer.index()].slots[slot.index()];
  found.has_checksum = true;
  found.checksum = checksum;
}

Status SlotTable::Verify(const std::function<Result<uint64_t>(LayerId, SlotId)>& read) const {
  for (int32_t l = 0; l < layers(); ++l) {
    for (int32_t s = 0; s < slots(LayerId(l)); ++s) {
      const Slot& slot = At(LayerId(l), SlotId(s));
      if (!slot.has_checksum || slot.state == SlotState::kEmpty || slot.state == SlotState::kFilling) continue;
      BELLHOP_TRY_ASSIGN(const uint64_t checksum, read(LayerId(l), SlotId(s)));
      if (checksum == slot.checksum) continue;
      return Corrupt(
          "slot {} of layer {} (expert {}, generation {}): its bytes are not those that were copied in (checksum {:#x} "
          "instead of {:#x})",
          s, l, slot.content.expert.value, slot.content.generation, checksum, slot.checksum);
    }
  }
  return Status();
}

}  // namespace bellhop::store
