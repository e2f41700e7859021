// What a file says about the split model that it is a part of, and the names of the other parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/gguf/gguf_reader.h"

namespace bellhop::formats {

struct SplitInfo {
  uint32_t number = 0;  // split.no, from 0
  uint32_t count = 1;   // split.count; 1: not split
  std::optional<uint64_t> total_tensors;
};

// kCorrupt for counts or numbers that make no sense; names file and key.
Result<SplitInfo> ReadSplitInfo(const GgufFile& file);

// "dir/model-00002-of-00003.gguf" -> {"dir/model", 2, 3}; nothing for any other name.
struct PartName {
  std::string prefix;
  uint32_t number = 0;  // from 1
  uint32_t count = 0;
};
std::optional<PartName> ParsePartName(std::string_view path);
std::string MakePartName(std::string_view prefix, uint32_t number, uint32_t count);

// kCorrupt when `part` cannot be a part of the same model as `first`: counts, totals or a key that both carry differ.
Status CheckSameModel(const GgufFile& first, const GgufFile& part, uint32_t expected_number);

// kCorrupt when another GGUF file follows the data of this part: parts joined with cat instead of a merge tool.
Status CheckNotConcatenated(const GgufFile& part, HostSpan<const std::byte> bytes);

}  // namespace bellhop::formats
