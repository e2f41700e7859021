// Weight formats: the one traits table that the rest of the code asks. No other folder knows a block layout.
// Source of every number: docs/formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "quant/weight_format.h"

namespace bellhop::quant {

inline constexpr uint32_t kNoGgufId = 0xFFFFFFFFu;

enum class EncoderKind : uint8_t {
  kNone,    // no encoder: `quantize` refuses the format
  kExact,   // bytes are fixed by docs/formats.md
  kSearch,  // any encoder is valid; ours is judged by reconstruction error
};

struct FormatTraits {
  WeightFormat format;
  std::string_view name;  // as in GGUF listings: "Q4_K", "IQ3_XXS"
  uint32_t gguf_id;       // type id in a GGUF file, or kNoGgufId
  uint32_t block_elems;   // elements per block; a row must be a multiple
  uint32_t block_bytes;   // bytes per block
  uint32_t scale_group;   // elements that share one scale (and minimum); = block_elems for plain formats
  bool has_min;           // value = scale * code - min; else value = scale * code
  bool weights;           // can hold weights of a matrix product (decodes to f32); false for I8..I64, F64, Q8_1, Q8_K
  EncoderKind encoder;
  // The format has no blocks and never occurs in GGUF files: gguf_id is kNoGgufId, block_elems and scale_group are 1,
  // block_bytes is 0. Its sizes come from quant/planar.h.
  bool planar = false;
};

const FormatTraits& Traits(WeightFormat format);
std::span<const FormatTraits> AllFormats();

std::optional<WeightFormat> FormatFromGgufId(uint32_t id);
// Case-insensitive: "q4_k", "Q4_K".
std::optional<WeightFormat> FormatFromName(std::string_view name);

// Bytes of one row of `cols` elements. kInvalidArgument when cols is not whole blocks, when the product overflows, and
// for planar formats, whose rows are not one piece.
Result<uint64_t> RowBytes(WeightFormat format, uint64_t cols);

}  // namespace bellhop::quant
