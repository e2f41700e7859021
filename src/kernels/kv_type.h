// What a KV cache is made of. Without other headers, so that .cu files can include it.
#pragma once

#include <cstdint>

namespace bellhop::kernels {

enum class KvType : uint8_t { kF32, kF16, kBF16 };
constexpr int64_t KvTypeBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

inline constexpr int kKvPageTokens = 64;

}  // namespace bellhop::kernels
