// Many sequences on one engine. One thread owns the engine and batches the sequences that generate into one decode step
// per token; prompts run in chunks between steps, so that running streams keep flowing. Front ends submit requests and
// receive what was generated through a sink.
//
// A sequence's tokens do not depend on what else runs: rows of a step are independent of each other, and only the
// prompt part of an earlier sequence is ever reused (docs/decisions/0006).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "decode/grammar.h"
#include "decode/sampler.h"
#include "engine/text_engine.h"

namespace bellhop::engine {

struct SequenceRequest {
  std::vector<TokenId> prompt;  // not empty
  decode::SamplingParams sampling;
  uint64_t sequence = 0;    // of the sampler's random numbers: choices of one request differ in it
  int32_t max_tokens = -1;  // -1: until end of generation or the context is full
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool special = false;       // give the text of control tokens too
  bool reuse_prefix = true;   // take what an earlier sequence computed of the same prompt
  int32_t top_logprobs = -1;  // -1: no log-probabilities; 0: of the chosen tokens alone
  // Restricts what is sampled; null: nothing. With triggers it takes hold right after the first text that equals one.
  std::shared_ptr<const decode::Grammar> grammar;
  std::vector<std::string> grammar_triggers;
};

// One generated token. logprob and top only with top_logprobs >= 0: log softmax of the raw logits.
struct SampledToken {
  TokenId id = -1;
  float logprob = 0;
  std::vector<decode::TokenLogprob> top;  // likeliest first
};

// What one step gave a sequence: the tokens sampled since the last delta and the text that they completed, cut before a
// stop string and never inside a character. Text may lag behind tokens, and either may be empty.
struct SequenceDelta {
  std::string text;
  std::vector<SampledToken> tokens;
};

struct SequenceResult {
  Status status;  // not ok: the request failed, the other fields say how far it got
  FinishReason reason = FinishReason::kLength;
  std::string stop;  // with kStop: the string
  int32_t prompt_tokens = 0;
  int32_t reused_tokens = 0;  // of the prompt
  int32_t generated_tokens = 0;
  double queue_ms = 0, prompt_ms = 0, decode_ms = 0;
  uint64_t hits = 0, misses = 0, rings = 0, promotions = 0;  // routes of this sequence; rings and promotions meanwhile
};

// Where a sequence's output goes. Called on the engine's thread and must not block: a sink that cannot take more
// returns false, and the sequence is cancelled.
class SequenceSink {
 public:
  virtual ~SequenceSink() = default;
  virtual bool OnDelta(const SequenceDelta& delta) = 0;
  virtual void OnEnd(const SequenceResult& result) = 0;  // once, and last
};

}  // namespace bellhop::engine
