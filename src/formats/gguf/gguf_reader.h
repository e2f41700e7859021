// Parses a GGUF container (versions 2 and 3) where it lies in memory. Pure: no file access, no knowledge of models.
// Finding and joining the parts of a split file is in gguf_model.h, hyper-parameters are in manifest_builder.h.
//
// Every count, length, type and offset is checked against the bytes that remain before it is used, and what is
// allocated grows with the bytes that were really read. Where the format text and common writers differ, this reader
//   accepts  any power of two as alignment, also below 8; n_dims 0 (one element); tensor names of 64 bytes; gaps
//            between tensors and tensors out of offset order; bytes behind the last tensor; keys outside the naming
//            rule; strings that are not UTF-8 (kept as bytes); tensors of the run-time types Q8_1 and Q8_K;
//   refuses  a dimension of 0; an empty tensor name; bool bytes other than 0 and 1; overlapping tensors;
//            general.alignment stored as anything but u32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "manifest/manifest.h"
#include "manifest/metadata.h"

namespace bellhop::formats {

// Limits on what one file may hold; far above every published model.
inline constexpr uint64_t kMaxGgufKeys = 1u << 16;
inline constexpr uint64_t kMaxGgufTensors = 1u << 20;
inline constexpr uint64_t kMaxGgufArrayItems = 1u << 24;  // strings and inner arrays, all keys together
inline constexpr int kMaxGgufArrayDepth = 8;
inline constexpr uint64_t kMaxGgufKeyBytes = 65535;
inline constexpr uint64_t kMaxGgufTensorNameBytes = 64;
inline constexpr uint32_t kDefaultGgufAlignment = 32;

struct GgufFile {
  std::string name;  // as given by the caller, for messages
  uint64_t bytes = 0;
  uint32_t version = 0;
  uint32_t alignment = kDefaultGgufAlignment;
  uint64_t data_offset = 0;  // absolute; without tensors: the end of the header
  uint64_t data_end = 0;     // absolute end of the last tensor in the file (= data_offset without tensors)
  manifest::Metadata metadata;
  std::vector<manifest::Tensor> tensors;  // file order; offset is absolute; `file` is 0
};

// The result points into `bytes`, which must outlive it. A refusal (kCorrupt or kUnsupported) is one line: the file,
// the key or tensor, the byte offset, the reason, and the remedy where there is one.
Result<GgufFile> ParseGguf(HostSpan<const std::byte> bytes, std::string_view name);

// `text` from a file, fit for one line of a message: control and non-ASCII bytes escaped, long text shortened.
std::string Printable(std::string_view text);

}  // namespace bellhop::formats
