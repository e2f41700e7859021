// Loads and stores of packed little-endian fields at any alignment. Private to quant/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace bellhop::quant {

static_assert(std::endian::native == std::endian::little, "packed fields are loaded as they lie");

template <typename T>
inline T Load(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

template <typename T>
inline void Store(void* p, T v) {
  std::memcpy(p, &v, sizeof(v));
}

inline float LoadHalf(const void* p) { return F16ToF32(Load<uint16_t>(p)); }
inline void StoreHalf(void* p, float v) { Store(p, F32ToF16(v)); }

inline const uint8_t* Bytes(const std::byte* p) { return reinterpret_cast<const uint8_t*>(p); }
inline uint8_t* Bytes(std::byte* p) { return reinterpret_cast<uint8_t*>(p); }

}  // namespace bellhop::quant
