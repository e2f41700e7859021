// Generic hyper-parameters from metadata: defaults, per-layer arrays, bounds. No architecture is known here.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"

namespace bellhop::formats {

// Bounds far above every published model; they keep later arithmetic and allocations sane.
inline constexpr uint32_t kMaxLayers = 4096;
inline constexpr uint32_t kMaxExperts = 65536;
inline constexpr uint32_t kMaxHeads = 65536;
inline constexpr uint32_t kMaxHeadLength = 65536;
inline constexpr uint32_t kMaxWidth = 1u << 24;  // hidden and inner sizes
inline constexpr uint32_t kMaxVocab = 1u << 28;
inline constexpr uint32_t kMaxContext = 0x7FFFFFFF;

// `fallback_vocab` stands in for a missing vocab_size key. kNotFound and kCorrupt name the key (and both values where
// two disagree); kUnsupported names a value that no code handles, such as a RoPE scaling type.
Result<manifest::Hparams> ReadHparams(const manifest::Metadata& metadata, std::string_view architecture,
                                      uint64_t fallback_vocab);

}  // namespace bellhop::formats
