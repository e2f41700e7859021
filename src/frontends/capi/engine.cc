// Engines: options, creation, description.
#include <cmath>
#include <memory>
#include <string>

#include "bellhop/bellhop.h"
#include "config/config.h"
#include "frontends/capi/calls.h"

namespace bellhop::capi {
namespace {

static_assert(static_cast<int>(config::Device::kCuda) == BELLHOP_DEVICE_CUDA);
static_assert(static_cast<int>(config::KvCacheType::kBF16) == BELLHOP_KV_BF16);
static_assert(static_cast<int>(config::KvCacheType::kF16) == BELLHOP_KV_F16);
static_assert(static_cast<int>(config::ActMode::kF32) == BELLHOP_ACT_F32);
static_assert(static_cast<int>(config::OffloadMode::kRequired) == BELLHOP_OFFLOAD_REQUIRED);
static_assert(static_cast<int>(config::MissLane::kSplit) == BELLHOP_MISS_LANE_SPLIT);
static_assert(static_cast<int>(config::HugePagesMode::kRequired) == BELLHOP_HUGE_PAGES_REQUIRED);
static_assert(static_cast<int>(config::PrefaultMode::kRequired) == BELLHOP_PREFAULT_REQUIRED);

constexpr size_t kOptionsV1 = BELLHOP_SIZE_THROUGH(bellhop_engine_options, log_user);
constexpr size_t kInfoV1 = BELLHOP_SIZE_THROUGH(bellhop_engine_info, has_chat_template);

bellhop_engine_options DefaultOptions() {
  const config::EngineConfig defaults;
  bellhop_engine_options options = {};
  options.struct_size = sizeof(options);
  options.device = static_cast<int32_t>(defaults.runtime.device);
  options.threads = defaults.runtime.threads;
  options.pin_threads = defaults.runtime.pin_threads ? 1 : 0;
  options.deterministic = defaults.runtime.deterministic ? 1 : 0;
  options.vram_bytes = BELLHOP_AUTO_BYTES;
  options.ram_bytes = BELLHOP_AUTO_BYTES;
  options.gpu_experts = -1;
  options.gpu_experts_percent = -1;
  options.offload = static_cast<int32_t>(defaults.runtime.offload);
  options.miss_lane = static_cast<int32_t>(defaults.runtime.miss_lane);
  options.huge_pages = static_cast<int32_t>(defaults.runtime.huge_pages);
  options.prefault = static_cast<int32_t>(defaults.runtime.prefault);
  options.context_tokens = defaults.context.context_tokens;
  options.batch_rows = defaults.context.batch_rows;
  options.kv_type = static_cast<int32_t>(defaults.context.kv_type);
  options.act = static_cast<int32_t>(defaults.context.act);
  options.context_shift = defaults.context.shift ? 1 : 0;
  options.keep_tokens = defaults.context.keep_tokens;
  return options;
}

template <typename Enum>
Status SetEnum(int32_t value, Enum last, std::string_view name, Enum* out) {
  if (value < 0 || value > static_cast<int32_t>(last)) {
    return InvalidArgument("{} is {}; it must be 0 to {}", name, value, static_cast<int32_t>(last));
  }
  *out = static_cast<Enum>(value);
  return Status();
}

Status SetFlag(int32_t value, std::string_view name, bool* out) {
  BELLHOP_TRY(CheckFlag(value, name));
  *out = value == 1;
  return Status();
}

Status SetGpuExperts(const bellhop_engine_options& in, config::RuntimeConfig* out) {
  if (in.gpu_experts < -1 || in.gpu_experts > UINT32_MAX) {
    return InvalidArgument("gpu_experts is {}; it must be -1 (automatic) or a number of experts", in.gpu_experts);
  }
  if (in.gpu_experts >= 0) out->gpu_experts = static_cast<uint32_t>(in.gpu_experts);
  if (std::isnan(in.gpu_experts_percent) || in.gpu_experts_percent > 100) {
    return InvalidArgument("gpu_experts_percent is {}; it must be negative (automatic) or 0 to 100",
                           in.gpu_experts_percent);
  }
  if (in.gpu_experts_percent >= 0) out->gpu_experts_percent = in.gpu_experts_percent;
  if (out->gpu_experts && out->gpu_experts_percent) {
    return InvalidArgument("gpu_experts and gpu_experts_percent are both set; set one");
  }
  return Status();
}

Result<config::EngineConfig> ToConfig(const bellhop_engine_options& in) {
  config::EngineConfig config;
  BELLHOP_TRY(CheckNotNull(in.model_path, "model_path"));
  config.model_path = in.model_path;
  config::RuntimeConfig& runtime = config.runtime;
  if (in.isa != nullptr) runtime.isa = in.isa;
  if (in.profile_path != nullptr) runtime.profile_path = in.profile_path;
  runtime.threads = in.threads;
  BELLHOP_TRY(SetEnum(in.device, config::Device::kCuda, "device", &runtime.device));
  BELLHOP_TRY(SetEnum(in.offload, config::OffloadMode::kRequired, "offload", &runtime.offload));
  BELLHOP_TRY(SetEnum(in.miss_lane, config::MissLane::kSplit, "miss_lane", &runtime.miss_lane));
  BELLHOP_TRY(SetEnum(in.huge_pages, config::HugePagesMode::kRequired, "huge_pages", &runtime.huge_pages));
  BELLHOP_TRY(SetEnum(in.prefault, config::PrefaultMode::kRequired, "prefault", &runtime.prefault));
  BELLHOP_TRY(SetFlag(in.pin_threads, "pin_threads", &runtime.pin_threads));
  BELLHOP_TRY(SetFlag(in.deterministic, "deterministic", &runtime.deterministic));
  BELLHOP_TRY(SetGpuExperts(in, &runtime));
  if (in.vram_bytes != BELLHOP_AUTO_BYTES) runtime.vram_bytes = in.vram_bytes;
  if (in.ram_bytes != BELLHOP_AUTO_BYTES) runtime.ram_bytes = in.ram_bytes;
  config::ContextConfig& context = config.context;
  context.context_tokens = in.context_tokens;
  context.batch_rows = in.batch_rows;
  context.keep_tokens = in.keep_tokens;
  BELLHOP_TRY(SetEnum(in.kv_type, config::KvCacheType::kBF16, "kv_type", &context.kv_type));
  BELLHOP_TRY(SetEnum(in.act, config::ActMode::kF32, "act", &context.act));
  BELLHOP_TRY(SetFlag(in.context_shift, "context_shift", &context.shift));
  return config;
}

bellhop_engine_info DescribeEngine(const engine::TextEngine& engine) {
  const engine::ModelInfo& model = engine.info();
  bellhop_engine_info info = {};
  info.architecture = model.architecture.c_str();
  info.name = model.name.c_str();
  info.expert_formats = model.expert_formats.c_str();
  info.dense_formats = model.dense_formats.c_str();
  info.isa = model.isa.c_str();
  info.kv_type = model.kv_type.c_str();
  info.file_bytes = model.file_bytes;
  info.parameters = model.parameters;
  info.bytes_per_token = model.bytes_per_token;
  info.layers = model.layers;
  info.experts = model.experts;
  info.experts_used = model.experts_used;
  info.vocab = model.vocab;
  info.trained_context = model.trained_context;
  info.context = model.context;
  info.threads = model.threads;
  info.has_chat_template = engine.has_chat_template() ? 1 : 0;
  return info;
}

}  // namespace
}  // namespace bellhop::capi

using namespace bellhop;        // NOLINT: this file defines C functions alone
using namespace bellhop::capi;  // NOLINT

extern "C" {

bellhop_status bellhop_engine_options_init(bellhop_engine_options* options, size_t struct_size) noexcept {
  return Guarded([&] { return WriteStruct(DefaultOptions(), struct_size, kOptionsV1, "options", options); });
}

bellhop_status bellhop_engine_create(const bellhop_engine_options* options, bellhop_engine** engine) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(engine, "engine"));
    *engine = nullptr;
    bellhop_engine_options known = DefaultOptions();
    BELLHOP_TRY(ReadStruct(options, kOptionsV1, "options", &known));
    BELLHOP_TRY_ASSIGN(const config::EngineConfig config, ToConfig(known));
    auto handle = std::make_unique<bellhop_engine>(known.log, known.log_user);
    BELLHOP_TRY_ASSIGN(handle->engine, engine::TextEngine::Create(config, &handle->log));
    for (const std::string& line : handle->engine->PlanLines()) handle->log.Write(LogLevel::kInfo, line);
    *engine = handle.release();
    return Status();
  });
}

void bellhop_engine_destroy(bellhop_engine* engine) noexcept { delete engine; }

bellhop_status bellhop_engine_get_info(const bellhop_engine* engine, bellhop_engine_info* info) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(engine, "engine"));
    return WriteResult(DescribeEngine(*engine->engine), kInfoV1, "info", info);
  });
}

bellhop_status bellhop_engine_get_plan(bellhop_engine* engine, char* buffer, size_t capacity, size_t* bytes) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) -> Outcome {
    std::string text;
    for (const std::string& line : handle.engine->PlanLines()) text += line + "\n";
    return CopyText(text, buffer, capacity, bytes);
  });
}

}  // extern "C"
