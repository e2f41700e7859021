#include "quant/random_weights.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/units.h"
#include "quant/blocks.h"
#include "quant/half_fields.h"
#include "quant/packed.h"
#include "quant/planar_layout.h"

namespace bellhop::quant {
namespace {

// SplitMix64: one multiply-and-xor chain per word, so that filling runs at memory speed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  void Fill(std::byte* dst, int64_t bytes) {
    for (; bytes >= 8; bytes -= 8, dst += 8) Store(dst, Next());
    if (bytes == 0) return;
    const uint64_t last = Next();
    std::memcpy(dst, &last, static_cast<size_t>(bytes));
  }

 private:
  uint64_t state_;
};

// Either sign, magnitude 2^-9 to 2^-3, in the bits of an f32 that f16 and bf16 hold exactly (seven mantissa bits).
uint32_t ModerateBits(uint64_t bits) {
  return static_cast<uint32_t>((bits & 1) << 31 | (127 - 9 + (bits >> 8) % 6) << 23 | (bits >> 24 & 0x7F) << 16);
}
float ModerateFloat(Random& random) { return std::bit_cast<float>(ModerateBits(random.Next())); }
// E4M3 exponents of 2^-6 (the least normal one) to 2^-3, positive.
std::byte ModerateE4m3(uint64_t bits) { return static_cast<std::byte>((1 + bits % 4) << 3 | (bits >> 8 & 7)); }
uint16_t ModerateHalf(Random& random) { return F32ToF16(ModerateFloat(random)); }

void MakeModerate(WeightFormat format, Random& random, std::byte* block) {
  for (const int offset : HalfFields(format)) {
    if (offset >= 0) Store(block + offset, ModerateHalf(random));
  }
  switch (format) {
    case WeightFormat::kMXFP4: block[Mxfp4Block::kExponent] = static_cast<std::byte>(118 + random.Next() % 8); break;
    case WeightFormat::kNVFP4:
      for (int i = 0; i < 4; ++i) block[Nvfp4Block::kScales + i] = ModerateE4m3(random.Next());
      break;
    case WeightFormat::kIQ1M: {  // the half is spread over the top nibbles of four words
      const uint16_t half = ModerateHalf(random);
      for (int i = 0; i < 4; ++i) {
        std::byte& b = block[Iq1mBlock::kScales + 2 * i + 1];
        b = (b & std::byte{0x0F}) | static_cast<std::byte>((half >> (4 * i) & 15) << 4);
      }
      break;
    }
    case WeightFormat::kF16: Store(block, ModerateHalf(random)); break;
    case WeightFormat::kBF16: Store(block, F32ToBf16(ModerateFloat(random))); break;
    case WeightFormat::kF32: Store(block, ModerateFloat(random)); break;
    default: break;
  }
}

void FillBlocks(WeightFormat format, int64_t cols, RandomScales scales, Random& random, std::byte* dst) {
  const FormatTraits& t = Traits(format);
  const int64_t blocks = cols / t.block_elems;
  random.Fill(dst, blocks * t.block_bytes);
  if (scales == RandomScales::kAnyBits) return;
  for (int64_t i = 0; i < blocks; ++i) MakeModerate(format, random, dst + i * t.block_bytes);
}

// A few megabytes of distinct rows, then the same again in shifting order: scales are slower to make than to copy.
void FillBlockRows(const MatrixSpec& spec, RandomScales scales, Random& random, std::byte* dst) {
  constexpr int64_t kDistinctBytes = int64_t{4} << 20;
  const FormatTraits& t = Traits(spec.format);
  const int64_t row_bytes = spec.cols / t.block_elems * t.block_bytes;
  const int64_t distinct = std::clamp(kDistinctBytes / row_bytes, int64_t{1}, spec.rows);
  for (int64_t r = 0; r < distinct; ++r) FillBlocks(spec.format, spec.cols, scales, random, dst + r * row_bytes);
  for (int64_t r = distinct; r < spec.rows; ++r) {
    const int64_t from = (r + r / distinct * 7) % distinct;
    std::memcpy(dst + r * row_bytes, dst + from * row_bytes, static_cast<size_t>(row_bytes));
  }
}

void ClearUnusedBits(int bits, int64_t rows, int64_t count, std::byte* dst) {
  const int used = static_cast<int>(count * bits % 8);
  if (used == 0) return;
  const int64_t row_bytes = PackedRowBytes(bits, count);
  for (int64_t r = 0; r < rows; ++r) dst[r * row_bytes + row_bytes - 1] &= static_cast<std::byte>((1 << used) - 1);
}

void FillScales(ScaleType type, int64_t count, Random& random, std::byte* dst) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random.Next();
    switch (type) {
      case ScaleType::kNone: return;
      case ScaleType::kF16: Store(dst + 2 * i, F32ToF16(std::bit_cast<float>(ModerateBits(bits)))); break;
      case ScaleType::kBF16: Store(dst + 2 * i, F32ToBf16(std::bit_cast<float>(ModerateBits(bits)))); break;
      case ScaleType::kF32: Store(dst + 4 * i, ModerateBits(bits)); break;
      case ScaleType::kE8M0: dst[i] = static_cast<std::byte>(118 + bits % 6); break;
      case ScaleType::kE4M3: dst[i] = ModerateE4m3(bits); break;
    }
  }
}

void FillPlanes(const MatrixSpec& spec, const QuantView& view, RandomScales scales, Random& random, std::byte* dst) {
  const PlanarTraits& p = Planar(spec.format);
  const auto writable = [&](int plane) { return dst + (view.planes[plane].data - view.planes[kCodesPlane].data); };
  const QuantPlane& codes = view.planes[kCodesPlane];
  const QuantPlane& scale_plane = view.planes[kScalesPlane];
  const QuantPlane& zeros = view.planes[kZeroPointsPlane];
  random.Fill(dst, codes.row_bytes * (p.k_major ? spec.cols : spec.rows));
  if (!p.k_major && p.row_unit == 1) ClearUnusedBits(p.bits, spec.rows, spec.cols, dst);
  if (scales == RandomScales::kAnyBits) {
    random.Fill(writable(kScalesPlane), scale_plane.row_bytes * spec.rows);
  } else {
    FillScales(spec.scale_type, GroupCount(view) * spec.rows, random, writable(kScalesPlane));
  }
  if (zeros.data == nullptr) return;
  random.Fill(writable(kZeroPointsPlane), zeros.row_bytes * spec.rows);
  ClearUnusedBits(p.bits, spec.rows, GroupCount(view), writable(kZeroPointsPlane));
}

}  // namespace

QuantView FillRandomMatrix(const MatrixSpec& spec, HostSpan<std::byte> memory, uint64_t seed, RandomScales scales) {
  assert(CheckSpec(spec).ok() && memory.size() >= MatrixBytes(spec));
  Random random(seed);
  const QuantView view = PlaceMatrix(spec, memory.data());
  if (Traits(spec.format).planar) {
    FillPlanes(spec, view, scales, random, memory.data());
  } else {
    FillBlockRows(spec, scales, random, memory.data());
  }
  return view;
}

OwnedMatrix RandomMatrix(const MatrixSpec& spec, uint64_t seed, RandomScales scales) {
  OwnedMatrix matrix;
  matrix.bytes.resize(MatrixBytes(spec));
  matrix.view = FillRandomMatrix(spec, matrix.bytes, seed, scales);
  return matrix;
}

void FillRandomBlocks(WeightFormat format, int64_t cols, RandomScales scales, uint64_t seed, std::byte* dst) {
  Random random(seed);
  FillBlocks(format, cols, scales, random, dst);
}

}  // namespace bellhop::quant
