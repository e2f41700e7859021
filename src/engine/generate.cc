// Generation: prompt chunks, decode steps, sampling, stop rules, context shifts.
#include <algorithm>

#include "engine/running_sequence.h"
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

Result<std::optional<TokenId>> TextEngineImpl::DecodeStep(TokenId token, RunningSequence* running) {
  BELLHOP_TRY(sequence_->Reserve(1));
  const int64_t vocab = info_.vocab;
  model::StepRow row{sequence_.get(), sequence_->length(), token, true};
  const MatView<float> logits{logits_.data(), 1, vocab, vocab};
  std::optional<TokenId> sampled;
  if (sampler_ != nullptr) {
    const auto position = static_cast<uint64_t>(row.position) + 1;
    if (running == nullptr) sampler_->rows().SetGreedy(0);
    row.want_logits = running != nullptr && !running->SampleOnDevice(sampler_->rows(), 0, position);
    BELLHOP_TRY(model_->ForwardAndSample({&row, 1}, logits, sampler_.get()));
    if (!row.want_logits) {
      BELLHOP_TRY_ASSIGN(sampled, sampler_->Token(0));
    }
  } else {
    BELLHOP_TRY(model_->Forward(moe::NumericClass::kDecode, {&row, 1}, logits));
  }
  ++steps_;
  sequence_->Accept(1);
  sequence_tokens_.push_back(token);
  return sampled;
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

// Takes what one generation gives out.
class TextEngineImpl::GenerationSink final : public SequenceSink {
 public:
  GenerationSink(const GenerateRequest& request, GenerateResult* result) : request_(request), result_(result) {}

  bool OnDelta(const SequenceDelta& delta) override {
    for (const SampledToken& token : delta.tokens) result_->ids.push_back(token.id);
    result_->text += delta.text;
    if (!delta.text.empty() && request_.on_text) request_.on_text(delta.text);
    return true;
  }
  void OnEnd(const SequenceResult& result) override { result_->reason = result.reason; }

 private:
  const GenerateRequest& request_;
  GenerateResult* result_;
};

// Drops the oldest half of what follows the kept tokens and computes the rest again, as a prompt.
Status TextEngineImpl::ShiftContext(int32_t keep, const std::atomic<bool>* cancel) {
  const std::vector<TokenId>& held = sequence_tokens_;
  const auto length = static_cast<int32_t>(held.size());
  const int32_t kept = std::clamp(length - 2, 0, keep);  // a context of one token keeps none
  const int32_t dropped = std::max((length - kept) / 2, 1);
  std::vector<TokenId> rest(held.begin(), held.begin() + kept);
  rest.insert(rest.end(), held.begin() + kept + dropped, held.end());
  BELLHOP_TRY(sequence_->Truncate(0));
  sequence_tokens_.clear();
  prompt_class_tokens_ = 0;
  return Prefill(rest, 0, static_cast<int32_t>(rest.size()), cancel,
                 [](int32_t, MatView<const float>) { return Status(); });
}

// Samples from the logits at hand, or takes what a device has sampled, and feeds it, until the sequence ends.
Status TextEngineImpl::DecodeLoop(const GenerateRequest& request, int32_t keep, RunningSequence* running,
                                  GenerateResult* result) {
  const auto cancelled = [&] { return request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed); };
  const HostSpan<float> logits(logits_.data(), static_cast<size_t>(info_.vocab));
  if (!running->wants_tokens()) {
    running->Finish(FinishReason::kLength);
    return Status();
  }
  std::optional<TokenId> sampled;
  for (;;) {
    if (cancelled()) {
      running->Finish(FinishReason::kCancelled);
      return Status();
    }
    if (!sampled) {
      BELLHOP_TRY_ASSIGN(sampled, running->Sample(logits, static_cast<uint64_t>(sequence_->length())));
    }
    const TokenId token = *sampled;
    BELLHOP_TRY_ASSIGN(const bool goes_on, running->Take(token, logits));
    if (!goes_on) return Status();
    if (sequence_->length() == options_.context_tokens) {
      if (!config_.context.shift) {
        running->Finish(FinishReason::kLength);
        return Status();
      }
      ++result->context_shifts;
      const Status shifted = ShiftContext(keep, request.cancel);
      if (shifted.code() == StatusCode::kCancelled) {
        running->Finish(FinishReason::kCancelled);
        return Status();
      }
      BELLHOP_TRY(shifted);
    }
    BELLHOP_TRY_ASSIGN(sampled, DecodeStep(token, running));
  }
}

Result<GenerateResult> TextEngineImpl::Generate(const GenerateRequest& request) {
  const auto prompt_tokens = static_cast<int32_t>(request.prompt.size());
  if (prompt_tokens == 0) return InvalidArgument("the prompt is empty: there is nothing to continue; pass -p or -f");
  if (prompt_tokens > options_.context_tokens) {
    return InvalidArgument("the prompt has {} tokens, the context {}; raise --ctx-size or shorten the prompt",
                           prompt_tokens, options_.context_tokens);
  }
  GenerateResult result;
  const RunningSequence::Model shared{
      .tokenizer = tokenizer_.get(), .index = nullptr, .vocab = info_.vocab, .context = options_.context_tokens};
  SequenceRequest sequence;
  sequence.prompt = request.prompt;
  sequence.sampling = request.sampling;
  sequence.max_tokens = request.max_tokens;
  sequence.stop = request.stop;
  sequence.ignore_eos = request.ignore_eos;
  sequence.special = request.special;
  BELLHOP_TRY_ASSIGN(
      const std::unique_ptr<RunningSequence> running,
      RunningSequence::Create(shared, std::move(sequence), std::make_shared<GenerationSink>(request, &result)));
  result.prompt_tokens = prompt_tokens;
  const int32_t room = options_.context_tokens - prompt_tokens + 1;
  result.ids.reserve(static_cast<size_t>(request.max_tokens >= 0 ? std::min(request.max_tokens, room) : room));

  const int64_t start = sys::MonotonicNs();
  BELLHOP_TRY_ASSIGN(result.reused_tokens, ReusePrefix(request.prompt));
  const Status prefilled = Prefill(request.prompt, result.reused_tokens, prompt_tokens - 1, request.cancel,
                                   [](int32_t, MatView<const float>) { return Status(); });
  const int64_t decode_start = sys::MonotonicNs();
  result.prompt_ms = static_cast<double>(decode_start - start) / 1e6;
  if (prefilled.code() == StatusCode::kCancelled) {
    result.reason = FinishReason::kCancelled;
    return result;
  }
  BELLHOP_TRY(prefilled);
  // Of the prompt, what a shift keeps.
  const int32_t keep =
      config_.context.keep_tokens < 0 ? prompt_tokens : std::min(config_.context.keep_tokens, prompt_tokens);
  BELLHOP_TRY(DecodeLoop(request, keep, running.get(), &result));
  result.decode_ms = static_cast<double>(sys::MonotonicNs() - decode_start) / 1e6;
  return result;
}

}  // namespace bellhop::engine
