// One synthetic expert: where its matrices lie in a piece of memory.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/opbench_formats.h"
#include "store/expert_store.h"

namespace bellhop::engine {

struct OpbenchExpert {
  OpbenchFormat format;
  int64_t hidden = 0, inter = 0;
  uint64_t up = 0, down = 0;  // offsets; gate comes first. Each matrix on a cache line
  uint64_t fc1_bytes = 0, down_bytes = 0, stride = 0;

  // kInvalidArgument names the option, when the format cannot hold the widths.
  static Result<OpbenchExpert> Create(const OpbenchFormat& format, int64_t hidden, int64_t inter);
  uint64_t bytes() const { return 2 * fc1_bytes + down_bytes; }  // without the gaps between matrices
  store::ExpertView View(const std::byte* memory) const;
  // Random weights.
  store::ExpertView Fill(std::byte* memory, uint64_t seed) const;
};

// Widths of whole blocks where the format came with a list such as `all`; those asked for otherwise.
struct OpbenchWidths {
  int64_t hidden = 0, inter = 0;
};
OpbenchWidths WholeBlocks(const OpbenchFormat& format, OpbenchWidths asked);

}  // namespace bellhop::engine
