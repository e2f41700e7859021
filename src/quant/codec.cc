#include "quant/codec.h"

#include <cassert>
#include <cmath>
#include <limits>

#include "quant/block_codecs.h"
#include "quant/packed.h"

namespace bellhop::quant {
namespace {

DecodeBlocksFn FindDecoder(WeightFormat format) {
  for (auto find : {FindPlainDecoder, FindSimpleDecoder, FindKDecoder, FindIqDecoder}) {
    if (DecodeBlocksFn fn = find(format)) return fn;
  }
  return nullptr;
}

EncodeBlocksFn FindEncoder(WeightFormat format) {
  for (auto find : {FindPlainEncoder, FindSimpleEncoder, FindKEncoder, FindIqEncoder}) {
    if (EncodeBlocksFn fn = find(format)) return fn;
  }
  return nullptr;
}

// Above the largest value of any search format (Q6_K and IQ4_XS reach 65504 * 128 * 32): refused before a square of it
// can overflow in a search.
constexpr float kSearchLimit = 0x1p30f;

Status CheckValues(const FormatTraits& traits, const float* src, int64_t count) {
  const bool search = traits.encoder == EncoderKind::kSearch;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(src[i])) {
      return InvalidArgument("element {} is {}; {} holds finite numbers only: repair the source, or keep it in F32", i,
                             src[i], traits.name);
    }
    if (search && std::fabs(src[i]) > kSearchLimit) {
      return InvalidArgument("element {} is {}: too large for the f16 scale of {}; keep the tensor in BF16 or F32", i,
                             src[i], traits.name);
    }
  }
  return Status();
}

Status CheckImportance(const float* importance, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!(importance[i] >= 0.0f && importance[i] <= std::numeric_limits<float>::max())) {
      return InvalidArgument("importance of element {} is {}; it must be a finite number that is not negative", i,
                             importance[i]);
    }
  }
  return Status();
}

}  // namespace

void DecodeRow(WeightFormat format, const std::byte* src, int64_t count, float* dst) {
  const FormatTraits& traits = Traits(format);
  assert(count % traits.block_elems == 0);
  const DecodeBlocksFn decode = FindDecoder(format);
  assert(decode != nullptr);
  decode(Bytes(src), count / traits.block_elems, dst);
}

Status EncodeRow(WeightFormat format, const float* src, int64_t count, const float* importance, std::byte* dst) {
  const FormatTraits& traits = Traits(format);
  const EncodeBlocksFn encode = FindEncoder(format);
  if (encode == nullptr) {
    return Unsupported("there is no {} encoder; choose a format that `quantize` lists, such as Q4_K or Q8_0",
                       traits.name);
  }
  if (count < 0 || count % traits.block_elems != 0) {
    return InvalidArgument("a row of {} elements is not whole {} blocks; the row length must be a multiple of {}",
                           count, traits.name, traits.block_elems);
  }
  const bool packed = traits.block_elems > 1;
  if (packed) BELLHOP_TRY(CheckValues(traits, src, count));
  if (traits.encoder == EncoderKind::kSearch && importance != nullptr) BELLHOP_TRY(CheckImportance(importance, count));
  encode(src, count / traits.block_elems, importance, Bytes(dst));
  if (!packed) return Status();
  if (Status valid = ValidateRow(format, dst, count); !valid.ok()) {
    return InvalidArgument("values too large for the f16 scale of {} ({}); keep the tensor in BF16 or F32", traits.name,
                           valid.message());
  }
  return Status();
}

}  // namespace bellhop::quant
