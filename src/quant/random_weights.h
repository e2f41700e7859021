// Random but valid weight matrices of every format, for benchmarks and tests: deterministic by seed, and fast enough
// for gigabytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"
#include "quant/planar.h"

namespace bellhop::quant {

enum class RandomScales : uint8_t {
  kModerate,  // magnitudes of 2^-9 to 2^-3: products stay finite and are not zero
  kAnyBits,   // arbitrary bytes: NaN, Inf and subnormal scales too
};

// Fills MatrixBytes(spec) bytes at memory.data() and returns the view of them. The spec must be valid (CheckSpec).
QuantView FillRandomMatrix(const MatrixSpec& spec, HostSpan<std::byte> memory, uint64_t seed,
                           RandomScales scales = RandomScales::kModerate);

// The same with memory of its own.
struct OwnedMatrix {
  std::vector<std::byte> bytes;
  QuantView view;
};
OwnedMatrix RandomMatrix(const MatrixSpec& spec, uint64_t seed, RandomScales scales = RandomScales::kModerate);

// `cols` elements (whole blocks) of a GGUF format.
void FillRandomBlocks(WeightFormat format, int64_t cols, RandomScales scales, uint64_t seed, std::byte* dst);

}  // namespace bellhop::quant
