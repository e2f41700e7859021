// Many sequences on one engine. One thread owns the engine and batches the sequences that generate into one decode step
// per token; prompts run in chunks between steps, so that running streams keep flowing. Front ends submit requests and
// receive what was generated through a sink.
//
// A sequence's tokens do not depend on what else runs: rows of a step are independent of each other, and only the
// prompt part of an earlier sequence is ever reused (docs/decisions/0006).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

struct ServiceOptions {
  int32_t queue_limit = 64;  // sequences that may wait for a slot
  // Called once with the loaded engine, before its thread starts: for measurements.
  std::function<void(TextEngine& engine)> before_start;
};

// One place for a sequence: busy with a request, or idle with what it still holds for prefix reuse.
struct SlotInfo {
  bool busy = false;
  uint64_t ticket = 0;
  int32_t prompt_tokens = 0, prompt_done = 0, generated_tokens = 0;
  int32_t cached_tokens = 0;  // in its KV cache
};

struct ServiceSnapshot {
  ExpertStats experts;
  std::vector<std::vector<ExpertTier>> tiers;  // [layer][expert]
  TrafficTotals traffic;
  std::vector<MemoryUse> memory;
  std::vector<SlotInfo> slots;
  int32_t queued = 0;
  uint64_t steps = 0;          // decode steps
  uint64_t prompt_tokens = 0;  // computed, without reused ones
  uint64_t reused_tokens = 0;
  uint64_t decode_tokens = 0;
  double prompt_ms = 0, decode_ms = 0;  // time inside the model
  double tokens_per_s = 0;              // generated, over the last seconds
};

class TextService {
 public:
  // Loads the model and starts its thread; config.context.sequences requests run at a time.
  static Result<std::unique_ptr<TextService>> Start(const config::EngineConfig& config, const ServiceOptions& options,
                                                    LogSink* log, const LoadProgress& progress = {});
  // Cancels what still runs.
  virtual ~TextService() = default;

  // Const calls on it are safe on any thread; counters come from Snapshot.
  virtual const TextEngine& engine() const = 0;

  // All sequences of one request or none; sinks[i] receives sequence i. None when the queue is full. Errors name the
  // field: a bad sampling parameter, stop string or token, a prompt that the context does not hold, with both numbers.
  virtual Result<std::optional<uint64_t>> Submit(std::vector<SequenceRequest> requests,
                                                 std::vector<std::shared_ptr<SequenceSink>> sinks) = 0;
  // The request's sequences end within one step; their sinks still get OnEnd. Unknown tickets are ignored.
  virtual void Cancel(uint64_t ticket) = 0;
  virtual void CancelAll() = 0;
  // Waits at most for a step; after that the last known state comes.
  virtual ServiceSnapshot Snapshot() = 0;
  // False when requests were still running at the deadline.
  virtual bool WaitUntilIdle(std::chrono::milliseconds limit) = 0;
};

}  // namespace bellhop::engine
