#include "quant/format.h"

#include <array>

#include "base/units.h"

namespace bellhop::quant {
namespace {

using enum EncoderKind;
using F = WeightFormat;

constexpr FormatTraits PlanarRow(WeightFormat format, std::string_view name) {
  return {format, name, kNoGgufId, 1, 0, 1, false, true, kNone, true};
}

// Indexed by WeightFormat. Columns: format, name, GGUF id, elements and bytes per block, scale group, minimum,
// holds weights, encoder.
constexpr std::array<FormatTraits, kWeightFormatCount> kTraits = {{
    {F::kF32, "F32", 0, 1, 4, 1, false, true, kExact},
    {F::kF16, "F16", 1, 1, 2, 1, false, true, kExact},
    {F::kBF16, "BF16", 30, 1, 2, 1, false, true, kExact},
    {F::kF64, "F64", 28, 1, 8, 1, false, false, kNone},
    {F::kI8, "I8", 24, 1, 1, 1, false, false, kNone},
    {F::kI16, "I16", 25, 1, 2, 1, false, false, kNone},
    {F::kI32, "I32", 26, 1, 4, 1, false, false, kNone},
    {F::kI64, "I64", 27, 1, 8, 1, false, false, kNone},
    {F::kQ4_0, "Q4_0", 2, 32, 18, 32, false, true, kExact},
    {F::kQ4_1, "Q4_1", 3, 32, 20, 32, true, true, kExact},
    {F::kQ5_0, "Q5_0", 6, 32, 22, 32, false, true, kExact},
    {F::kQ5_1, "Q5_1", 7, 32, 24, 32, true, true, kExact},
    {F::kQ8_0, "Q8_0", 8, 32, 34, 32, false, true, kExact},
    {F::kQ8_1, "Q8_1", 9, 32, 36, 32, false, false, kExact},
    {F::kQ2K, "Q2_K", 10, 256, 84, 16, true, true, kSearch},
    {F::kQ3K, "Q3_K", 11, 256, 110, 16, false, true, kSearch},
    {F::kQ4K, "Q4_K", 12, 256, 144, 32, true, true, kSearch},
    {F::kQ5K, "Q5_K", 13, 256, 176, 32, true, true, kSearch},
    {F::kQ6K, "Q6_K", 14, 256, 210, 16, false, true, kSearch},
    {F::kQ8K, "Q8_K", 15, 256, 292, 256, false, false, kExact},
    {F::kIQ2XXS, "IQ2_XXS", 16, 256, 66, 32, false, true, kNone},
    {F::kIQ2XS, "IQ2_XS", 17, 256, 74, 16, false, true, kNone},
    {F::kIQ2S, "IQ2_S", 22, 256, 82, 16, false, true, kNone},
    {F::kIQ3XXS, "IQ3_XXS", 18, 256, 98, 32, false, true, kNone},
    {F::kIQ3S, "IQ3_S", 21, 256, 110, 32, false, true, kNone},
    {F::kIQ1S, "IQ1_S", 19, 256, 50, 32, false, true, kNone},
    {F::kIQ1M, "IQ1_M", 29, 256, 56, 16, false, true, kNone},
    {F::kIQ4NL, "IQ4_NL", 20, 32, 18, 32, false, true, kSearch},
    {F::kIQ4XS, "IQ4_XS", 23, 256, 136, 32, false, true, kSearch},
    {F::kTQ1_0, "TQ1_0", 34, 256, 54, 256, false, true, kExact},
    {F::kTQ2_0, "TQ2_0", 35, 256, 66, 256, false, true, kExact},
    {F::kMXFP4, "MXFP4", 39, 32, 17, 32, false, true, kExact},
    {F::kNVFP4, "NVFP4", 40, 64, 36, 16, false, true, kExact},
    {F::kQ1_0, "Q1_0", 41, 128, 18, 128, false, true, kExact},
    {F::kQ2_0, "Q2_0", 42, 64, 18, 64, false, true, kExact},
    PlanarRow(F::kInt4, "INT4"),
    PlanarRow(F::kInt4Sm80, "INT4_SM80"),
    PlanarRow(F::kInt3, "INT3"),
    PlanarRow(F::kInt8, "INT8"),
    PlanarRow(F::kInt8Sm80, "INT8_SM80"),
    PlanarRow(F::kMxfp4Planar, "MXFP4_PLANAR"),
    PlanarRow(F::kNvfp4Planar, "NVFP4_PLANAR"),
    PlanarRow(F::kMxfp4KMajor, "MXFP4_KMAJOR"),
    PlanarRow(F::kNvfp4KMajor, "NVFP4_KMAJOR"),
}};

constexpr bool TraitsAreInEnumOrder() {
  for (size_t i = 0; i < kTraits.size(); ++i) {
    if (static_cast<size_t>(kTraits[i].format) != i) return false;
    if (kTraits[i].block_elems % kTraits[i].scale_group != 0) return false;
  }
  return true;
}
static_assert(TraitsAreInEnumOrder());

constexpr char AsciiUpper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (AsciiUpper(a[i]) != AsciiUpper(b[i])) return false;
  }
  return true;
}

}  // namespace

const FormatTraits& Traits(WeightFormat format) { return kTraits[static_cast<size_t>(format)]; }

std::span<const FormatTraits> AllFormats() { return kTraits; }

std::optional<WeightFormat> FormatFromGgufId(uint32_t id) {
  for (const FormatTraits& t : kTraits) {
    if (t.gguf_id == id && !t.planar) return t.format;
  }
  return std::nullopt;
}

std::optional<WeightFormat> FormatFromName(std::string_view name) {
  for (const FormatTraits& t : kTraits) {
    if (EqualIgnoringCase(t.name, name)) return t.format;
  }
  return std::nullopt;
}

Result<uint64_t> RowBytes(WeightFormat format, uint64_t cols) {
  const FormatTraits& t = Traits(format);
  if (t.planar) {
    return InvalidArgument("a row of {} lies in several planes; ask for the size of the whole matrix (MatrixBytes)",
                           t.name);
  }
  if (cols % t.block_elems != 0) {
    return InvalidArgument("a row of {} elements is not whole {} blocks; the row length must be a multiple of {}", cols,
                           t.name, t.block_elems);
  }
  uint64_t bytes = 0;
  if (!CheckedMul(cols / t.block_elems, t.block_bytes, &bytes)) {
    return InvalidArgument("a {} row of {} elements has more than 2^64 bytes; the row length is not plausible", t.name,
                           cols);
  }
  return bytes;
}

}  // namespace bellhop::quant
