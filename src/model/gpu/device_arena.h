// One allocation that is cut into pieces. Without memory it only counts, so that a plan and the allocation agree by
// construction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace bellhop::model {

class DeviceArena {
 public:
  DeviceArena() = default;  // counts
  explicit DeviceArena(std::byte* base) : base_(base) {}

  // Aligned to 256 bytes. While counting, an address that nobody may use.
  template <typename T>
  T* Take(uint64_t count) {
    const uint64_t offset = used_;
    used_ += RoundUp(count * sizeof(T), uint64_t{256});
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(base_) + offset);
  }
  bool counting() const { return base_ == nullptr; }
  uint64_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  uint64_t used_ = 0;
};

}  // namespace bellhop::model
