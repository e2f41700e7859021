// Sizes as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace bellhop {

// "12GiB", "12GB", "512MiB", "4096" (bytes), "1.5GiB", case-insensitive, optional space before the unit, final B
// optional ("12Gi", "12G"). K, M, G, T are powers of 1000; Ki, Mi, Gi, Ti of 1024. kInvalidArgument otherwise.
Result<uint64_t> ParseByteSize(std::string_view text);

// "17.3 MB" (powers of 1000) with three significant digits.
std::string FormatBytes(uint64_t bytes);

// a * b and a + b, or false on overflow.
[[nodiscard]] constexpr bool CheckedMul(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}
[[nodiscard]] constexpr bool CheckedAdd(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace bellhop
