// One request while it is generated, alone or in the service: from a row of logits to a token, its text and its end.
// Knows nothing of steps and slots.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "decode/constraint.h"
#include "decode/cuda/row_sampler.h"
#include "decode/sampler.h"
#include "decode/stop_matcher.h"
#include "engine/text_service.h"
#include "text/tokenizer.h"

namespace bellhop::engine {

class RunningSequence {
 public:
  // What every sequence of a service shares; outlives them.
  struct Model {
    const text::Tokenizer* tokenizer = nullptr;       // null: tokens alone come out
    std::shared_ptr<const decode::TokenIndex> index;  // null without a tokenizer
    int32_t vocab = 0;
    int32_t context = 0;
  };

  // Checks the request; see TextService::Submit.
  static Result<std::unique_ptr<RunningSequence>> Create(const Model& model, SequenceRequest request,
                                                         std::shared_ptr<SequenceSink> sink);

  const SequenceRequest& request() const { return request_; }
  SequenceResult& result() { return result_; }

  // The token that `logits` give at `position`. They are changed during the call and have their values back after it.
  // May run on any thread, one at a time. Errors end the request.
  Result<TokenId> Sample(HostSpan<float> logits, uint64_t position);

  // Sets row `row` of a device's sampler to draw what Sample would. False: this request needs its logits on the host.
  bool SampleOnDevice(decode::RowSampler& rows, int32_t row, uint64_t position);

  // Takes the token that Sample gave, with the same logits, or a device's sampler without any: passes it and its text
  // on. True: the sequence goes on with it; false: result() says how it ended.
  Result<bool> Take(TokenId token, HostSpan<const float> logits);

  // Gives out what is held back and ends the request. Once, and last.
  void Finish(FinishReason reason);
  void Fail(Status status);

  bool wants_tokens() const { return request_.max_tokens != 0; }

 private:
  RunningSequence(const Model& model, SequenceRequest request, std::shared_ptr<SequenceSink> sink,
                  decode::Sampler sampler, decode::StopMatcher stops);
  Status PushToken(TokenId token, HostSpan<const float> logits);
  // True: a stop string is complete.
  bool PushText(const std::string& text);
  bool Deliver();
  void End();

  const Model& model_;
  SequenceRequest request_;
  std::shared_ptr<SequenceSink> sink_;
  decode::Sampler sampler_;
  decode::StopMatcher stops_;
  std::optional<text::StreamDecoder> decoder_;
  std::optional<decode::Constraint> constraint_;
  SequenceDelta delta_;  // reused from step to step
  SequenceResult result_;
};

}  // namespace bellhop::engine
