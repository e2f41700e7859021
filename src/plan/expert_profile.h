// Measured expert popularity and its STRP file format (docs/formats.md, "STRP profiles"). Pure: bytes in, bytes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"

namespace bellhop::plan {

struct ExpertKey {
  LayerId layer;
  ExpertId expert;
  friend bool operator==(const ExpertKey&, const ExpertKey&) = default;
};

// Every ranked (layer, expert), hottest first over all layers. Layers without experts have no entries.
struct ExpertProfile {
  int32_t layers = 0;
  int32_t experts = 0;
  std::vector<ExpertKey> ranked;
};

// Ranks by count, highest first; ties by layer, then expert. counts[layer][expert]; a layer may be empty.
Result<ExpertProfile> RankExperts(const std::vector<std::vector<uint64_t>>& counts, int32_t experts);

std::vector<std::byte> SerializeStrp(const ExpertProfile& profile);

// kCorrupt names the file, the offset and the reason: magic, version, dimensions, out-of-range or duplicate pairs,
// truncation. A missing rank table is tolerated; a present one must agree with the list.
Result<ExpertProfile> ParseStrp(HostSpan<const std::byte> bytes, std::string_view file_name);

}  // namespace bellhop::plan
