// Log-probabilities of tokens in the shapes of OpenAI's APIs.
#pragma once

#include <vector>

#include "frontends/server/api_call.h"

namespace bellhop::server {

// [{"token", "logprob", "bytes", "top_logprobs": [...]}, ...]
Json TokenLogprobs(const engine::TextEngine& engine, const std::vector<engine::SampledToken>& tokens);

}  // namespace bellhop::server
