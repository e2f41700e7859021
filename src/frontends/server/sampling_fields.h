// Fields that choose tokens, shared by the APIs.
#pragma once

#include <string>
#include <string_view>

#include "frontends/server/fields.h"

namespace bellhop::server {

// temperature, top_p, top_k, min_p, seed, penalties, logit_bias, ignore_eos, cache_prompt.
void ReadSampling(const ApiContext& context, FieldReader& reader, engine::SequenceRequest* request);
// A string or up to 16 of them.
void ReadStops(FieldReader& reader, std::string_view name, engine::SequenceRequest* request);
// stream_options.include_usage.
bool ReadIncludeUsage(FieldReader& reader);
// n requests that differ in their random numbers.
std::vector<engine::SequenceRequest> Choices(const engine::SequenceRequest& request, int64_t n);
// model: the loaded one's name, its file's, "default", or absent.
void ReadModel(const ApiContext& context, FieldReader& reader);
// A prompt that the context does not hold.
std::optional<ApiError> CheckLength(const ApiContext& context, size_t prompt_tokens, std::string_view param);

inline constexpr int64_t kMaxChoices = 16;
inline constexpr int64_t kMaxTokens = INT32_MAX;

// "chatcmpl-" and 24 random characters.
std::string NewId(std::string_view prefix);

}  // namespace bellhop::server
