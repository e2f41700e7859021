// Generation, its sampling options, and cancelling it.
#include <memory>

#include "bellhop/bellhop.h"
#include "frontends/capi/calls.h"

namespace bellhop::capi {
namespace {

static_assert(static_cast<int>(engine::FinishReason::kStop) == BELLHOP_FINISH_STOP);
static_assert(static_cast<int>(engine::FinishReason::kEndOfGeneration) == BELLHOP_FINISH_EOG);
static_assert(static_cast<int>(engine::FinishReason::kLength) == BELLHOP_FINISH_LENGTH);
static_assert(static_cast<int>(engine::FinishReason::kCancelled) == BELLHOP_FINISH_CANCELLED);

constexpr size_t kSamplingV1 = BELLHOP_SIZE_THROUGH(bellhop_sampling_options, logit_bias_count);
constexpr size_t kGenerateV1 = BELLHOP_SIZE_THROUGH(bellhop_generate_options, on_text_user);
constexpr size_t kResultV1 = BELLHOP_SIZE_THROUGH(bellhop_generate_result, decode_ms);

bellhop_sampling_options DefaultSampling() {
  const decode::SamplingParams defaults;
  bellhop_sampling_options options = {};
  options.struct_size = sizeof(options);
  options.seed = defaults.seed;
  options.temperature = defaults.temperature;
  options.top_p = defaults.top_p;
  options.min_p = defaults.min_p;
  options.top_k = defaults.top_k;
  options.repeat_penalty = defaults.repeat_penalty;
  options.presence_penalty = defaults.presence_penalty;
  options.frequency_penalty = defaults.frequency_penalty;
  options.repeat_last_n = defaults.repeat_last_n;
  options.greedy = defaults.greedy ? 1 : 0;
  return options;
}

bellhop_generate_options DefaultGenerate() {
  bellhop_generate_options options = {};
  options.struct_size = sizeof(options);
  options.max_tokens = engine::GenerateRequest().max_tokens;
  return options;
}

Status CheckReserved(int32_t value) {
  return value == 0 ? Status() : InvalidArgument("reserved is {}; it must be 0", value);
}

Result<decode::SamplingParams> ToSampling(const bellhop_sampling_options* options) {
  bellhop_sampling_options in = DefaultSampling();
  if (options != nullptr) BELLHOP_TRY(ReadStruct(options, kSamplingV1, "sampling", &in));
  BELLHOP_TRY(CheckFlag(in.greedy, "greedy"));
  BELLHOP_TRY(CheckReserved(in.reserved));
  BELLHOP_TRY(CheckArray(in.logit_bias, in.logit_bias_count, "logit_bias"));
  decode::SamplingParams out;
  out.seed = in.seed;
  out.temperature = in.temperature;
  out.top_p = in.top_p;
  out.min_p = in.min_p;
  out.top_k = in.top_k;
  out.repeat_penalty = in.repeat_penalty;
  out.presence_penalty = in.presence_penalty;
  out.frequency_penalty = in.frequency_penalty;
  out.repeat_last_n = in.repeat_last_n;
  out.greedy = in.greedy == 1;
  for (size_t i = 0; i < in.logit_bias_count; ++i)
    out.logit_bias.emplace_back(in.logit_bias[i].id, in.logit_bias[i].bias);
  return out;
}

Result<engine::GenerateRequest> ToRequest(const bellhop_generate_options& in) {
  engine::GenerateRequest out;
  BELLHOP_TRY(CheckArray(in.prompt, in.prompt_count, "prompt"));
  BELLHOP_TRY(CheckArray(in.stop, in.stop_count, "stop"));
  BELLHOP_TRY(CheckFlag(in.ignore_eos, "ignore_eos"));
  BELLHOP_TRY(CheckFlag(in.special, "special"));
  BELLHOP_TRY(CheckReserved(in.reserved));
  if (in.max_tokens < -1) return InvalidArgument("max_tokens is {}; it must be -1 (no limit) or more", in.max_tokens);
  BELLHOP_TRY_ASSIGN(out.sampling, ToSampling(in.sampling));
  out.prompt.assign(in.prompt, in.prompt + in.prompt_count);
  out.max_tokens = in.max_tokens;
  out.ignore_eos = in.ignore_eos == 1;
  out.special = in.special == 1;
  for (size_t i = 0; i < in.stop_count; ++i) {
    BELLHOP_TRY(CheckNotNull(in.stop[i], "a stop string"));
    out.stop.emplace_back(in.stop[i]);
  }
  return out;
}

// The flag of one call, which its callback and the caller's cancel object set.
class StopFlag {
 public:
  explicit StopFlag(bellhop_cancel* cancel) : cancel_(cancel) {
    if (cancel_ != nullptr) cancel_->Attach(&flag_);
  }
  ~StopFlag() {
    if (cancel_ != nullptr) cancel_->Detach(&flag_);
  }
  StopFlag(const StopFlag&) = delete;
  StopFlag& operator=(const StopFlag&) = delete;

  const std::atomic<bool>* flag() const { return &flag_; }
  void StopFromCallback() {
    by_callback_ = true;
    flag_.store(true, std::memory_order_relaxed);
  }
  bool by_callback() const { return by_callback_; }

 private:
  bellhop_cancel* cancel_;
  std::atomic<bool> flag_ = false;
  bool by_callback_ = false;
};

Status Generate(bellhop_engine& handle, const bellhop_generate_options& options, bellhop_generate_result* result) {
  // Before anything is computed.
  if (result != nullptr) BELLHOP_TRY(CheckStructSize(result->struct_size, kResultV1, "result"));
  BELLHOP_TRY_ASSIGN(engine::GenerateRequest request, ToRequest(options));
  StopFlag stop(options.cancel);
  request.cancel = stop.flag();
  if (options.on_text != nullptr) {
    request.on_text = [&](std::string_view text) {
      if (stop.by_callback()) return;
      if (options.on_text(options.on_text_user, text.data(), text.size()) != 0) stop.StopFromCallback();
    };
  }
  handle.generated_ids.clear();
  handle.generated_text.clear();
  BELLHOP_TRY_ASSIGN(engine::GenerateResult generated, handle.engine->Generate(request));
  handle.generated_ids = std::move(generated.ids);
  handle.generated_text = std::move(generated.text);
  if (result == nullptr) return Status();
  bellhop_generate_result out = {};
  out.token_count = handle.generated_ids.size();
  out.text_bytes = handle.generated_text.size();
  out.reason = stop.by_callback() ? BELLHOP_FINISH_CALLBACK : static_cast<int32_t>(generated.reason);
  out.prompt_tokens = generated.prompt_tokens;
  out.reused_tokens = generated.reused_tokens;
  out.context_shifts = generated.context_shifts;
  out.prompt_ms = generated.prompt_ms;
  out.decode_ms = generated.decode_ms;
  return WriteResult(out, kResultV1, "result", result);
}

}  // namespace
}  // namespace bellhop::capi

using namespace bellhop;        // NOLINT: this file defines C functions alone
using namespace bellhop::capi;  // NOLINT

extern "C" {

bellhop_status bellhop_cancel_create(bellhop_cancel** cancel) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(cancel, "cancel"));
    *cancel = nullptr;
    *cancel = std::make_unique<bellhop_cancel>().release();
    return Status();
  });
}

bellhop_status bellhop_cancel_request(bellhop_cancel* cancel) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(cancel, "cancel"));
    cancel->Request();
    return Status();
  });
}

bellhop_status bellhop_cancel_reset(bellhop_cancel* cancel) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(cancel, "cancel"));
    cancel->Reset();
    return Status();
  });
}

void bellhop_cancel_destroy(bellhop_cancel* cancel) noexcept { delete cancel; }

bellhop_status bellhop_sampling_options_init(bellhop_sampling_options* options, size_t struct_size) noexcept {
  return Guarded([&] { return WriteStruct(DefaultSampling(), struct_size, kSamplingV1, "options", options); });
}

bellhop_status bellhop_generate_options_init(bellhop_generate_options* options, size_t struct_size) noexcept {
  return Guarded([&] { return WriteStruct(DefaultGenerate(), struct_size, kGenerateV1, "options", options); });
}

bellhop_status bellhop_generate(bellhop_engine* engine, const bellhop_generate_options* options,
                                bellhop_generate_result* result) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) -> Outcome {
    bellhop_generate_options known = DefaultGenerate();
    BELLHOP_TRY(ReadStruct(options, kGenerateV1, "options", &known));
    return Generate(handle, known, result);
  });
}

bellhop_status bellhop_generated_tokens(bellhop_engine* engine, int32_t* ids, size_t capacity, size_t* count) noexcept {
  return EngineCall(engine, [&](bellhop_engine& handle) {
    return CopyItems(handle.generated_ids.data(), handle.generated_ids.size(), ids, capacity, count);
  });
}

bellhop_status bellhop_generated_text(bellhop_engine* engine, char* buffer, size_t capacity, size_t* bytes) noexcept {
  return EngineCall(engine,
                    [&](bellhop_engine& handle) { return CopyText(handle.generated_text, buffer, capacity, bytes); });
}

}  // extern "C"
