#include "decode/cuda/device_sampling.h"

#include <algorithm>
#include <cmath>

#include "decode/sampler.h"

namespace bellhop::decode {

DeviceSampling MakeDeviceSampling(const SamplingParams& params, uint64_t sequence, uint64_t position) {
  return {.seed = params.seed,
          .sequence = sequence,
          .position = position,
          .log_min_p = std::log(static_cast<double>(params.min_p)),
          .temperature = params.temperature,
          .top_p = params.top_p,
          .repeat_penalty = params.repeat_penalty,
          .presence_penalty = params.presence_penalty,
          .frequency_penalty = params.frequency_penalty,
          .top_k = params.top_k,
          .greedy = params.IsGreedy() ? 1u : 0u};
}

int32_t CopyBiases(const SamplingParams& params, TokenBias* to) {
  TokenBias* end = to;
  for (const auto& [id, bias] : params.logit_bias) *end++ = {id, bias};
  const auto by_id = [](const TokenBias& a, const TokenBias& b) { return a.id < b.id; };
  if (!std::is_sorted(to, end, by_id)) std::stable_sort(to, end, by_id);  // a Sampler's are; sorting allocates
  return static_cast<int32_t>(end - to);
}

}  // namespace bellhop::decode
