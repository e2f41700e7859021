// What a model file holds, at container level: needs no known architecture and reads no weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace bellhop::engine {

struct InspectTensor {
  std::string name, format, shape;
  std::vector<uint64_t> dims;  // contiguous one first
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
};

struct InspectFormat {
  std::string format;
  uint64_t tensors = 0, elements = 0, bytes = 0;
};

struct InspectEntry {
  std::string key, type;
  std::string text;              // one line, long values shortened
  nlohmann::ordered_json value;  // arrays longer than `max_array` are cut, their full length is in `length`
  uint64_t length = 0;           // of an array, else 0
};

struct InspectResult {
  std::vector<std::string> files;
  uint32_t version = 0, alignment = 0;
  uint64_t file_bytes = 0, tensor_bytes = 0, elements = 0;
  std::string architecture;  // empty: not stated
  bool supported = false;    // can this build run it
  std::string support_note;  // why not
  std::vector<InspectEntry> metadata;
  std::vector<InspectTensor> tensors;
  std::vector<InspectFormat> formats;  // by bytes, largest first
};

Result<InspectResult> Inspect(const std::string& path, uint64_t max_array);

}  // namespace bellhop::engine
