// The configuration as plain structs with defaults: parsed once (parse.h), validated, printed, and passed on as const
// sub-structs. Nothing below engine/ sees more than its own part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bellhop::config {

enum class Device : uint8_t { kAuto, kCpu, kCuda };
enum class ActMode : uint8_t { kAuto, kF32 };                   // kF32: prompts in the decode class too
enum class KvCacheType : uint8_t { kAuto, kF32, kF16, kBF16 };  // kAuto: f16, or f32 with --act f32
enum class OffloadMode : uint8_t { kOff, kAuto, kRequired };
enum class MissLane : uint8_t { kAuto, kCpu, kPcie, kSplit };
// Experts copied to huge pages at load. kAuto: when the machine has them and the copy fits; kRequired: else an error.
enum class HugePagesMode : uint8_t { kOff, kAuto, kRequired };
// The mapped model read into memory at load. kAuto: when it fits; kRequired: else an error.
enum class PrefaultMode : uint8_t { kOff, kAuto, kRequired };

// The file that `bellhop doctor --calibrate` writes this machine's rates to, and plans read them from.
struct CalibrationConfig {
  std::string path;          // empty: none, as where no environment variable names a cache folder
  bool is_explicit = false;  // the user named it: a file that cannot be used is an error
};

// Where the model runs and with what budgets.
struct RuntimeConfig {
  Device device = Device::kAuto;
  int32_t threads = 0;  // 0: one per physical core within the CPU quota
  bool pin_threads = true;
  std::string isa = "auto";
  std::optional<uint64_t> vram_bytes;   // none: auto
  std::optional<uint64_t> ram_bytes;    // none: auto
  std::optional<uint32_t> gpu_experts;  // per layer
  std::optional<double> gpu_experts_percent;
  OffloadMode offload = OffloadMode::kAuto;
  MissLane miss_lane = MissLane::kAuto;
  HugePagesMode huge_pages = HugePagesMode::kOff;  // docs/decisions/0008: what it gains where, and what it costs
  PrefaultMode prefault = PrefaultMode::kAuto;
  bool deterministic = false;
  bool timers = false;       // the GPU measures how long it waits for the CPU
  std::string profile_path;  // STRP popularity profile; empty: none
  CalibrationConfig calibration;
};

struct ContextConfig {
  uint32_t context_tokens = 0;  // 0: the model's own, at most kDefaultContextTokens
  uint32_t batch_rows = 512;    // rows of one prompt chunk
  uint32_t sequences = 1;       // that generate at the same time, each with a context of its own
  KvCacheType kv_type = KvCacheType::kAuto;
  ActMode act = ActMode::kAuto;
  bool shift = false;       // drop the oldest half when the context is full, instead of an error
  int32_t keep_tokens = 0;  // of the prompt, kept by a shift; -1: all
};
inline constexpr uint32_t kDefaultContextTokens = 8192;
inline constexpr uint32_t kMaxSequences = 256;

struct EngineConfig {
  std::string model_path;
  RuntimeConfig runtime;
  ContextConfig context;
};

}  // namespace bellhop::config
