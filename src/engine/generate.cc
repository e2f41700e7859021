// Generation: prompt chunks, decode steps, sampling, stop rules, context shifts.
#include <algorithm>

#include "decode/stop_matcher.h"
#include "engine/text_engine_impl.h"
#include "sys/clock.h"

namespace bellhop::engine {

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kEndOfGeneration: return "eog";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "unknown";
}

double GenerateResult::decode_tokens_per_s() const {
  return decode_ms > 0 && ids.size() > 1 ? static_cast<double>(ids.size() - 1) * 1e3 / decode_ms : 0;
}

moe::NumericClass TextEngineImpl::prompt_class() const {
  return config_.context.act == config::ActMode::kF32 ? moe::NumericClass::kDecode : moe::NumericClass::kPrompt;
}

Status TextEngineImpl::Prefill(HostSpan<const TokenId> ids, int32_t from, int32_t first_logits,
                               const std::atomic<bool>* cancel, const OnLogits& on_logits) {
  const auto total = static_cast<int32_t>(ids.size());
  for (int32_t at = from; at < total;) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return Cancelled("cancelled");
    int32_t rows = std::min(options_.max_rows, total - at);
    // A chunk that wants logits holds no more rows of that kind than the buffer.
    if (at + rows > first_logits) rows = std::min(rows, std::max(first_logits - at, 0) + logits_rows());
    BELLHOP_TRY(sequence_->Reserve(rows));
    rows_.clear();
    for (int32_t i = at; i < at + rows; ++i) {
      rows_.push_back({sequence_.get(), i, ids[static_cast<size_t>(i)], i >= first_logits});
    }
    const int64_t vocab = info_.vocab;
    BELLHOP_TRY(model_->Forward(prompt_class(), rows_, {logits_.data(), logits_rows(), vocab, vocab}));
    ++steps_;
    sequence_->Accept(rows);
    sequence_tokens_.insert(sequence_tokens_.end(), ids.begin() + at, ids.begin() + at + rows);
    prompt_class_tokens_ = sequence_tokens_.size();
    const int32_t wanted = at + rows - std::max(first_logits, at);
    if (wanted > 0) BELLHOP_TRY(on_logits(at + rows - wanted, {logits_.data(), wanted, vocab, vocab}));
    at += rows;
  }
  return Status();
}

Status TextEngineImpl::DecodeStep(TokenId token) {
  BELLHOP_TRY(sequence_->Reserve(1));
  const int64_t vocab = info_.vocab;
  const model::StepRow row{sequence_.get(), sequence_->length(), token, true};
  BELLHOP_TRY(model_->Forward(moe::NumericClass::kDecode, {&row, 1}, {logits_.data(), 1, vocab, vocab}));
  ++steps_;
  sequence_->Accept(1);
  sequence_tokens_.push_back(token);
  return Status();
}

// Only rows that were computed as a prompt are reused, so that the answer does not depend on what ran before; the last
// token of the prompt is always computed, for its logits.
Result<int32_t> TextEngineImpl::ReusePrefix(HostSpan<const TokenId> prompt) {
  const size_t limit = std::min(prompt_class_tokens_, prompt.size() - 1);
  size_t same = 0;
  while (same < limit && sequence_tokens_[same] == prompt[same]) ++same;
  const int32_t resume = sequence_->ResumePoint(static_cast<int32_t>(same));
  BELLHOP_TRY(sequence_->Truncate(resume));
  sequence_tokens_.resize(static_cast<size_t>(resume));
  prompt_class_tokens_ = sequence_tokens_.size();
  return resume;
}

struct TextEngineImpl::Generation {
  TextEngineImpl& engine;
  const GenerateRequest& request;
  decode::Sampler sampler;
  decode::StopMatcher stops;
  std::optional<text::StreamDecoder> decoder;  // none: the file has no tokenizer, tokens alone come out
  GenerateResult result;
  int32_t keep = 0;  // tokens that a shift keeps

  bool cancelled() const { return request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed); }

  void Emit(std::string_view text) {
    if (text.empty()) return;
    result.text += text;
    if (request.on_text) request.on_text(text);
  }

  // True when a stop string ended generation.
  bool PushText(std::string_view text) {
    const decode::StopMatcher::Output out = stops.Push(text);
    Emit(out.text);
    return out.stopped;
  }

  Result<TokenId> Draw() {
    const HostSpan<float> logits(engine.logits_.data(), static_cast<size_t>(engine.info_.vocab));
    auto token = sampler.Sample(logits, 0, static_cast<uint64_t>(engine.sequence_->length()));
    if (token.ok()) return token;
    return token.status().WithContext(fmt::format("position {}", engine.sequence_->length()));
  }

  // Drops the oldest half of what follows the kept tokens and computes the rest again, as a prompt.
  Status Shift() {
    const std::vector<TokenId>& held = engine.sequence_tokens_;
    const auto length = static_cast<int32_t>(held.size());
    const int32_t kept = std::clamp(length - 2, 0, keep);  // a context of one token keeps none
    const int32_t dropped = std::max((length - kept) / 2, 1);
    std::vector<TokenId> rest(held.begin(), held.begin() + kept);
    rest.insert(rest.end(), held.begin() + kept + dropped, held.end());
    BELLHOP_TRY(engine.sequence_->Truncate(0));
    engine.sequence_tokens_.clear();
    engine.prompt_class_tokens_ = 0;
    ++result.context_shifts;
    return engine.Prefill(rest, 0, static_cast<int32_t>(rest.size()), request.cancel,
                          [](int32_t, MatView<const float>) { return Status(); });
  }

  // Feeds the last token and leaves the next logits; false when the context is full and may not shift.
  Result<bool> Step(TokenId token) {
    if (engine.sequence_->length() == engine.options_.context_tokens) {
      if (!engine.config_.context.shift) return false;
      BELLHOP_TRY(Shift());
    }
    BELLHOP_TRY(engine.DecodeStep(token));
    return true;
  }

  Status Loop() {
    const int64_t start = sys::MonotonicNs();
    result.reason = FinishReason::kLength;
    while (request.max_tokens < 0 || static_cast<int32_t>(result.ids.size()) < request.max_tokens) {
      if (cancelled()) {
        result.reason = FinishReason::kCancelled;
        break;
      }
      BELLHOP_TRY_ASSIGN(const TokenId token, Draw());
      const bool end = engine.tokenizer_ != nullptr && engine.tokenizer_->IsEndOfGeneration(token);
      if (end && !request.ignore_eos) {
        result.reason = FinishReason::kEndOfGeneration;
        break;
      }
      sampler.Accept(token);
      result.ids.push_back(token);
      if (decoder && PushText(decoder->Push(token))) {
        result.reason = FinishReason::kStop;
        break;
      }
      if (static_cast<int32_t>(result.ids.size()) == request.max_tokens) break;
      auto went_on = Step(token);
      if (!went_on.ok() && went_on.status().code() == StatusCode::kCancelled) {
        result.reason = FinishReason::kCancelled;
        break;
      }
      if (!went_on.ok()) return went_on.status();
      if (!*went_on) break;
    }
    if (result.reason != FinishReason::kStop && decoder) {
      if (PushText(decoder->Flush())) {
        result.reason = FinishReason::kStop;
      } else {
        Emit(stops.Flush());
      }
    }
    result.decode_ms = static_cast<double>(sys::MonotonicNs() - start) / 1e6;
    return Status();
  }
};

Result<GenerateResult> TextEngineImpl::Generate(const GenerateRequest& request) {
  const auto prompt_tokens = static_cast<int32_t>(request.prompt.size());
  if (prompt_tokens == 0) return InvalidArgument("the prompt is empty: there is nothing to continue; pass -p or -f");
  if (prompt_tokens > options_.context_tokens) {
    return InvalidArgument("the prompt has {} tokens, the context {}; raise --ctx-size or shorten the prompt",
                           prompt_tokens, options_.context_tokens);
  }
  BELLHOP_TRY_ASSIGN(decode::Sampler sampler, decode::Sampler::Create(request.sampling, info_.vocab));
  BELLHOP_TRY_ASSIGN(decode::StopMatcher stops, decode::StopMatcher::Create(request.stop));
  for (const TokenId id : request.prompt) sampler.Accept(id);
  Generation run{*this, request, std::move(sampler), std::move(stops), std::nullopt, {}, 0};
  if (tokenizer_ != nullptr) run.decoder.emplace(*tokenizer_, request.special);
  run.keep = config_.context.keep_tokens < 0 ? prompt_tokens : std::min(config_.context.keep_tokens, prompt_tokens);
  run.result.prompt_tokens = prompt_tokens;
  const int32_t room = options_.context_tokens - prompt_tokens + 1;
  run.result.ids.reserve(static_cast<size_t>(request.max_tokens >= 0 ? std::min(request.max_tokens, room) : room));

  const int64_t start = sys::MonotonicNs();
  BELLHOP_TRY_ASSIGN(run.result.reused_tokens, ReusePrefix(request.prompt));
  const Status prefilled = Prefill(request.prompt, run.result.reused_tokens, prompt_tokens - 1, request.cancel,
                                   [](int32_t, MatView<const float>) { return Status(); });
  run.result.prompt_ms = static_cast<double>(sys::MonotonicNs() - start) / 1e6;
  if (prefilled.code() == StatusCode::kCancelled) {
    run.result.reason = FinishReason::kCancelled;
    return std::move(run.result);
  }
  BELLHOP_TRY(prefilled);
  BELLHOP_TRY(run.Loop());
  return std::move(run.result);
}

}  // namespace bellhop::engine
