// What a piece of memory is for. Every large allocation carries one, so "who uses the memory" is one table.
#pragma once

#include <string_view>

namespace bellhop {

enum class MemoryTag { kDenseWeights, kExpertWeights, kKvCache, kWorkspace, kStaging, kDoorbell, kGraph, kOther };

constexpr std::string_view MemoryTagName(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::kDenseWeights: return "dense weights";
    case MemoryTag::kExpertWeights: return "expert weights";
    case MemoryTag::kKvCache: return "KV cache";
    case MemoryTag::kWorkspace: return "workspace";
    case MemoryTag::kStaging: return "staging";
    case MemoryTag::kDoorbell: return "doorbell";
    case MemoryTag::kGraph: return "graphs";
    case MemoryTag::kOther: return "other";
  }
  return "other";
}

}  // namespace bellhop
