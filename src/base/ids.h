// Identifiers that must not be swapped: passing an ExpertId where a LayerId is expected does not compile.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace bellhop {

template <typename Tag>
struct StrongId {
  int32_t value = -1;

  constexpr StrongId() = default;
  constexpr explicit StrongId(int32_t v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using LayerId = StrongId<struct LayerIdTag>;
using ExpertId = StrongId<struct ExpertIdTag>;
using SlotId = StrongId<struct SlotIdTag>;      // index of a slot in its layer's bank; negative: miss
using TokenIdx = StrongId<struct TokenIdxTag>;  // index of a row within one step
using DeviceId = StrongId<struct DeviceIdTag>;

// A vocabulary entry. Plain integer: token lists cross the C ABI and JSON.
using TokenId = int32_t;

}  // namespace bellhop

template <typename Tag>
struct std::hash<bellhop::StrongId<Tag>> {
  size_t operator()(bellhop::StrongId<Tag> id) const noexcept { return std::hash<int32_t>()(id.value); }
};
