#include "engine/running_sequence.h"

#include <utility>

namespace bellhop::engine {
namespace {

constexpr int32_t kMaxTopLogprobs = 100;

Status CheckPrompt(const SequenceRequest& request, const RunningSequence::Model& model) {
  const size_t tokens = request.prompt.size();
  if (tokens == 0) return InvalidArgument("the prompt is empty: there is nothing to continue");
  if (tokens > static_cast<size_t>(model.context)) {
    return InvalidArgument("the prompt has {} tokens, the context {}; shorten the prompt or raise --ctx-size", tokens,
                           model.context);
  }
  for (size_t i = 0; i < tokens; ++i) {
    if (request.prompt[i] < 0 || request.prompt[i] >= model.vocab) {
      return InvalidArgument("prompt token {} is {}; the vocabulary has ids 0 to {}", i, request.prompt[i],
                             model.vocab - 1);
    }
  }
  return Status();
}

}  // namespace

RunningSequence::RunningSequence(const Model& model, SequenceRequest request, std::shared_ptr<SequenceSink> sink,
                                 decode::Sampler sampler, decode::StopMatcher stops)
    : model_(model),
      request_(std::move(request)),
      sink_(std::move(sink)),
      sampler_(std::move(sampler)),
      stops_(std::move(stops)) {}

Result<std::unique_ptr<RunningSequence>> RunningSequence::Create(const Model& model, SequenceRequest request,
                                                                 std::shared_ptr<SequenceSink> sink) {
  BELLHOP_TRY(CheckPrompt(request, model));
  if (request.top_logprobs > kMaxTopLogprobs) {
    return InvalidArgument("top_logprobs is {}; at most {} are given", request.top_logprobs, kMaxTopLogprobs);
  }
  if (request.grammar != nullptr && model.index == nullptr) {
    return Unsupported("a grammar needs a tokenizer, and the model has none that can be used");
  }
  BELLHOP_TRY_ASSIGN(decode::Sampler sampler, decode::Sampler::Create(request.sampling, model.vocab));
  BELLHOP_TRY_ASSIGN(decode::StopMatcher stops, decode::StopMatcher::Create(request.stop));
  for (const TokenId id : request.prompt) sampler.Accept(id);
  auto sequence = std::unique_ptr<RunningSequence>(
      new RunningSequence(model, std::move(request), std::move(sink), std::move(sampler), std::move(stops)));
  const SequenceRequest& held = sequence->request_;
  if (model.tokenizer != nullptr) sequence->decoder_.emplace(*model.tokenizer, held.special);
  if (held.grammar != nullptr) sequence->constraint_.emplace(held.grammar, model.index, held.grammar_triggers);
  sequence->result_.prompt_tokens = static_cast<int32_t>(held.prompt.size());
  sequence->delta_.tokens.reserve(1);
  return sequence;
}

Result<TokenId> RunningSequence::Sample(HostSpan<float> logits, uint64_t position) {
  const HostSpan<const uint64_t> allowed = constraint_ ? constraint_->Mask() : HostSpan<const uint64_t>();
  auto token = sampler_.Sample(logits, request_.sequence, position, allowed);
  if (token.ok()) return token;
  return token.status().WithContext(fmt::format("position {}", position));
}

bool RunningSequence::SampleOnDevice(decode::RowSampler& rows, int32_t row, uint64_t position) {
  if (constraint_ || request_.top_logprobs >= 0) {
    rows.SetGreedy(row);
    return false;
  }
  return rows.SetRow(row, sampler_, request_.sequence, position);
}

Status RunningSequence::PushToken(TokenId token, HostSpan<const float> logits) {
  SampledToken& sampled = delta_.tokens.emplace_back();
  sampled.id = token;
  if (request_.top_logprobs < 0) return Status();
  sampled.top.resize(static_cast<size_t>(request_.top_logprobs));
  BELLHOP_TRY_ASSIGN(sampled.logprob, decode::TopLogprobs(logits, token, {sampled.top.data(), sampled.top.size()}));
  std::erase_if(sampled.top, [](const decode::TokenLogprob& entry) { return entry.id < 0; });
  return Status();
}

bool RunningSequence::PushText(const std::string& text) {
  const decode::StopMatcher::Output out = stops_.Push(text);
  delta_.text += out.text;
  if (out.stopped) result_.stop = request_.stop[out.which];
  return out.stopped;
}

bool RunningSequence::Deliver() {
  if (delta_.text.empty() && delta_.tokens.empty()) return true;
  const bool taken = sink_->OnDelta(delta_);
  delta_.text.clear();
  delta_.tokens.clear();
  return taken;
}

Result<bool> RunningSequence::Take(TokenId token, HostSpan<const float> logits) {
  const bool end = model_.tokenizer != nullptr && model_.tokenizer->IsEndOfGeneration(token);
  if (end && !request_.ignore_eos) {
    Finish(FinishReason::kEndOfGeneration);
    return false;
  }
  sampler_.Accept(token);
  if (constraint_ && !end) BELLHOP_TRY(constraint_->Accept(token));
  ++result_.generated_tokens;
  BELLHOP_TRY(PushToken(token, logits));
  const bool stopped = decoder_ && PushText(decoder_->Push(token));
  if (!Deliver()) {
    result_.reason = FinishReason::kCancelled;
    End();
  } else if (stopped) {
    Finish(FinishReason::kStop);
  } else if (result_.generated_tokens == request_.max_tokens) {
    Finish(FinishReason::kLength);
  } else {
    return true;
  }
  return false;
}

void RunningSequence::Finish(FinishReason reason) {
  result_.reason = reason;
  if (reason != FinishReason::kStop && decoder_) {
    if (PushText(decoder_->Flush())) {
      result_.reason = FinishReason::kStop;
    } else {
      delta_.text += stops_.Flush();
    }
    if (!Deliver()) result_.reason = FinishReason::kCancelled;
  }
  End();
}

void RunningSequence::Fail(Status status) {
  result_.status = std::move(status);
  End();
}

void RunningSequence::End() { sink_->OnEnd(result_); }

}  // namespace bellhop::engine
