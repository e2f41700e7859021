// From a row of logits to a token. The random number of a draw depends on (seed, sequence, position) alone, so a run
// is repeatable whatever else is in the batch and wherever the row is sampled.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"

namespace bellhop::decode {

struct TokenCount;  // cuda/device_sampling.h

struct SamplingParams {
  float temperature = 0.8f;  // 0: greedy
  float top_p = 0.95f;       // 1: off
  float min_p = 0.05f;       // 0: off
  int32_t top_k = 40;        // 0 or -1: off
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t repeat_last_n = 64;  // tokens that the penalties look back on; 0: none, -1: the whole context
  uint64_t seed = 0;
  bool greedy = false;
  // Added to the logits before everything else; -Inf bans a token; entries of one token add up.
  std::vector<std::pair<TokenId, float>> logit_bias = {};

  // kInvalidArgument names the field, its value and the range.
  Status Validate() const;
  bool IsGreedy() const { return greedy || temperature == 0.0f; }
  bool HasPenalties() const {
    return repeat_last_n != 0 && (repeat_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f);
  }
};

// One sequence's sampler: parameters, the tokens that penalties see, and buffers made once. Stages, in this order:
//   logit_bias
//   mask: a token whose bit is clear has -Inf from here on
//   penalties, once per distinct token among the last repeat_last_n accepted ones, seen c times:
//     l = l > 0 ? l / repeat_penalty : l * repeat_penalty; l -= c * frequency_penalty + presence_penalty
//   greedy: the largest logit, the lowest id among equals
//   top_k: the k largest logits; of equal ones the lower id is larger
//   top_p: with p = softmax(l) over what is left, the shortest prefix in descending order whose sum reaches top_p
//   min_p: p >= min_p * max(p)
//   temperature and draw: w = exp((l - max) / temperature); in ascending id order, the first token at which the running
//     sum exceeds u * sum(w), u = UniformAt(seed, sequence, position)
// Sums are over integers (sampling_math.h), so that no order of summation shows and a GPU draws the same token.
// At least one token always remains. A logit of -Inf is never drawn. Not thread-safe.
class Sampler {
 public:
  // Validates `params`, and the bias ids against the vocabulary.
  static Result<Sampler> Create(SamplingParams params, int32_t vocab_size);

  Sampler(Sampler&&) noexcept = default;
  Sampler& operator=(Sampler&&) noexcept = default;

  // The token for `position` of `sequence`. Allocates nothing unless it fails. `logits` has vocab_size entries; they
  // are changed during the call and have their values back when it returns. kInternal, "numeric fault": a NaN or +Inf
  // (in the row, or made by penalties), or no logit above -Inf.
  // `allow`, unless empty, is a mask: bit t % 64 of word t / 64 of token t, words for the whole vocabulary. Logits of
  // other tokens do not matter, whatever they are. kInvalidArgument when no bit is set.
  Result<TokenId> Sample(HostSpan<float> logits, uint64_t sequence, uint64_t position,
                         HostSpan<const uint64_t> allow = {});

  // Tells the penalties that `token` is now part of the text. Ids outside the vocabulary are ignored.
  void Accept(TokenId token);
  // Forgets everything, then accepts `history` in order.
  void Reset(HostSpan<const TokenId> history);

  // logit_bias in ascending order of tokens.
  const SamplingParams& params() const { return params_; }
  // For sampling elsewhere: the distinct tokens that penalties change now, each with its occurrences in their window,
  // in no order, and how many; -1, and nothing of use, when there are more than `room`.
  int32_t CopyPenalized(TokenCount* to, int32_t room);
  int32_t vocab_size() const { return vocab_size_; }

 private:
  struct Candidate {
    float logit;
    TokenId id;
  };
  struct Change {
    TokenId id;
    float original;
  };

  Sampler(SamplingParams params, int32_t vocab_size);

  static bool Better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
  void SetLogit(HostSpan<float> logits, TokenId id, float value);
  void ApplyBiasAndPenalties(HostSpan<float> logits);
  void Penalize(HostSpan<float> logits, TokenId id);
  // fn(token, occurrences) for each distinct token that penalties change.
  template <typename Fn>
  void ForEachPenalized(const Fn& fn);
  Result<TokenId> Choose(HostSpan<float> logits, uint64_t sequence, uint64_t position, HostSpan<const uint64_t> allow);
  void CollectTopK(HostSpan<const float> logits, HostSpan<const uint64_t> allow);
  uint64_t Mass(float max) const;           // of the candidates: sum of exp(logit - max)
  void KeepMass(float max, uint64_t mass);  // the shortest descending prefix with at least that mass
  void KeepMinP(float max);
  TokenId Draw(float max, double uniform);

  SamplingParams params_;
  int32_t vocab_size_ = 0;

  // Only with penalties: occurrences of each token within the window; the window itself is a ring, unless it is the
  // whole context.
  std::vector<int32_t> counts_;
  std::vector<TokenId> window_;
  size_t window_used_ = 0, window_next_ = 0;

  std::vector<Change> changes_;  // of this call, oldest first; never grows beyond its reserved size
  size_t candidate_room_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<uint64_t> weights_;
};

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0;
};

// log softmax(logits): of `chosen` as the result, and of the top.size() likeliest tokens, likeliest first (the lower id
// among equals). Entries beyond the vocabulary stay at id -1. Allocates nothing. kInternal "numeric fault" as above;
// kInvalidArgument for a `chosen` outside the vocabulary.
Result<float> TopLogprobs(HostSpan<const float> logits, TokenId chosen, HostSpan<TokenLogprob> top);

}  // namespace bellhop::decode
