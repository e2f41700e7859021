// Re-encodes a model file's matrices in another weight format.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace bellhop::engine {

struct QuantizeOptions {
  std::string type;         // "q4_0", "q4_k", "mxfp4", ...: for every matrix that can take it
  std::string dense_type;   // for matrices that are not routed experts; empty: as `type`
  std::string output_type;  // for output.weight and token_embd.weight; empty: as dense_type
  std::vector<std::pair<std::string, std::string>>
      tensor_types;               // PCRE2 pattern on the tensor name, type; first match wins
  int32_t threads = 0;            // 0: one per physical core
  bool allow_requantize = false;  // from a block format; refused otherwise, since it loses twice
  bool overwrite = false;
  // Bytes of output tensors; called on the calling thread, the last time with done == total.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes, const std::string& tensor)> progress;
  const std::atomic<bool>* cancel = nullptr;  // polled between pieces of a tensor; ends with kCancelled and no file
};

struct QuantizeReport {
  uint64_t in_bytes = 0, out_bytes = 0;
  uint64_t tensors = 0, converted = 0;
  std::vector<std::string> notes;  // fallbacks (row length not whole blocks), each with the tensor and the type used
};

// Formats that can be written, as `type` takes them: "F32, F16, BF16, Q4_0, ...".
std::string QuantizableFormats();

// Norms, biases, routers and 1-D tensors stay F32 (or as they are). A matrix whose row length is not whole blocks of
// the type takes the next type that fits (docs/formats.md) and is named in the notes. A pattern that matches no matrix
// is an error. A matrix that has its type already is copied byte for byte; decoding a block format to F32 is exact and
// needs no permission. Split models become one file. The output does not depend on the number of threads, and it
// appears only when it is complete.
//
// kInvalidArgument: an unknown type or pattern, `out` exists or is an input, values that the type cannot hold;
// kUnsupported: a type without an encoder, re-encoding that was not allowed.
Result<QuantizeReport> Quantize(const std::string& in, const std::string& out, const QuantizeOptions& options);

}  // namespace bellhop::engine
