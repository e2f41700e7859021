// How a row is sampled on a GPU, in memory that kernels read: a captured graph is replayed with other contents.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace bellhop::decode {

struct SamplingParams;

struct TokenBias {
  TokenId id;
  float bias;
};
struct TokenCount {
  TokenId id;
  int32_t count;
};

// Fields and stages as in SamplingParams and Sampler. Pointers are memory that the GPU can read.
struct DeviceSampling {
  uint64_t seed = 0, sequence = 0, position = 0;
  double log_min_p = 0;  // -Inf: off
  float temperature = 1, top_p = 1;
  float repeat_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int32_t top_k = 0;
  uint32_t greedy = 0;
  int32_t biases_used = 0, penalized_used = 0;
  const TokenBias* biases = nullptr;      // those of one token adjacent, in the order in which they are added
  const TokenCount* penalized = nullptr;  // distinct tokens of the penalties' window, each with its occurrences there
  const uint64_t* allow = nullptr;        // bit t % 64 of word t / 64 of token t; null: every token
};

// Everything but the mask, biases and penalized tokens, of which there are none yet.
DeviceSampling MakeDeviceSampling(const SamplingParams& params, uint64_t sequence, uint64_t position);
// The parameters' biases in the order that DeviceSampling asks for, and how many; `to` has room for all of them.
int32_t CopyBiases(const SamplingParams& params, TokenBias* to);

// Bits of DeviceSample::flags.
constexpr uint32_t kSampleFault = 1;           // no token: NaN or +Inf, or nothing above -Inf (Sampler: kInternal)
constexpr uint32_t kSampleNothingAllowed = 2;  // no token: the mask is empty (Sampler: kInvalidArgument)
constexpr uint32_t kSampleTooManyEdits = 4;    // no token: more biases and penalties than SampleArgs::max_edits
constexpr uint32_t kSampleNoLogprob = 8;       // the row as given has NaN or +Inf, or nothing above -Inf

struct DeviceSample {
  TokenId id = -1;
  float logprob = 0;  // log softmax of the row as given, before biases and penalties; 0 where there is none
  uint32_t flags = 0;
};

struct SampleArgs {
  float* logits = nullptr;  // [rows][stride]; changed meanwhile, as given afterwards
  int64_t stride = 0;
  int32_t rows = 0, vocab = 0;
  const DeviceSampling* params = nullptr;  // [rows]
  DeviceSample* results = nullptr;         // [rows], device or pinned memory
  int32_t max_edits = 0;                   // biases and penalized tokens of a row, together, at most
  void* workspace = nullptr;               // SampleWorkspaceBytes, aligned to 8 bytes; contents do not matter
};

constexpr int32_t kSampleChunk = 4096;  // logits that one block of the first kernel looks at

// What a block of the first kernel has seen.
struct ChunkStats {
  uint64_t best;  // the candidate that comes first
  double sum;     // of exp(logit - max) of the row as given
  float max;
  uint32_t flags;
};

constexpr int32_t SampleChunks(int32_t vocab) { return (vocab + kSampleChunk - 1) / kSampleChunk; }
constexpr uint64_t SampleWorkspaceBytes(int32_t rows, int32_t vocab, int32_t max_edits) {
  return static_cast<uint64_t>(rows) * (static_cast<uint64_t>(SampleChunks(vocab)) * sizeof(ChunkStats) +
                                        static_cast<uint64_t>(max_edits) * sizeof(float));
}

}  // namespace bellhop::decode
