#include "frontends/server/sampling_fields.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <random>

#include <fmt/format.h>

namespace bellhop::server {
namespace {

constexpr double kMaxReal = 1e6;
constexpr size_t kMaxStops = 16;

// Keys are token ids; values what is added to the logit. -100 bans, as clients of OpenAI's API expect.
void ReadLogitBias(const ApiContext& context, FieldReader& reader, engine::SequenceRequest* request) {
  const Json* bias = reader.Object("logit_bias");
  if (bias == nullptr) return;
  constexpr double kBan = -100;
  const int32_t vocab = context.engine->info().vocab;
  for (const auto& [key, value] : bias->items()) {
    int32_t id = -1;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (code != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab) {
      return reader.Fail("logit_bias", fmt::format("'{}' is no token; ids are 0 to {}", key, vocab - 1));
    }
    if (!value.is_number() || !(std::abs(value.get<double>()) <= kMaxReal)) {
      return reader.Fail("logit_bias", fmt::format("the bias of token {} must be a number", id));
    }
    const auto number = value.get<double>();
    request->sampling.logit_bias.emplace_back(id, number <= kBan ? -INFINITY : static_cast<float>(number));
  }
}

uint64_t RandomSeed() { return std::random_device()(); }

}  // namespace

void ReadSampling(const ApiContext& context, FieldReader& reader, engine::SequenceRequest* request) {
  decode::SamplingParams& sampling = request->sampling;
  const auto real = [&](std::string_view name, double least, double most, float* out) {
    if (const auto value = reader.Number(name, least, most)) *out = static_cast<float>(*value);
  };
  real("temperature", 0, kMaxReal, &sampling.temperature);
  real("top_p", 0, 1, &sampling.top_p);
  real("min_p", 0, 1, &sampling.min_p);
  real("repeat_penalty", 1e-6, kMaxReal, &sampling.repeat_penalty);
  real("presence_penalty", -kMaxReal, kMaxReal, &sampling.presence_penalty);
  real("frequency_penalty", -kMaxReal, kMaxReal, &sampling.frequency_penalty);
  if (const auto value = reader.Integer("top_k", -1, INT32_MAX)) sampling.top_k = static_cast<int32_t>(*value);
  if (const auto value = reader.Integer("repeat_last_n", -1, 1 << 24)) {
    sampling.repeat_last_n = static_cast<int32_t>(*value);
  }
  const auto seed = reader.Integer("seed", -1, INT64_MAX);
  sampling.seed = seed && *seed >= 0 ? static_cast<uint64_t>(*seed) : RandomSeed();
  ReadLogitBias(context, reader, request);
  request->ignore_eos = reader.Bool("ignore_eos").value_or(false);
  request->reuse_prefix = reader.Bool("cache_prompt").value_or(true);
}

void ReadStops(FieldReader& reader, std::string_view name, engine::SequenceRequest* request) {
  const Json* stop = reader.Any(name);
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMaxStops) return reader.Fail(name, fmt::format("at most {} strings are taken", kMaxStops));
  for (const Json& entry : list) {
    if (!entry.is_string() || entry.get_ref<const std::string&>().empty()) {
      return reader.Fail(name, "must be a string, or an array of strings, none of them empty");
    }
    request->stop.push_back(entry.get<std::string>());
  }
}

bool ReadIncludeUsage(FieldReader& reader) {
  const Json* options = reader.Object("stream_options");
  if (options == nullptr) return false;
  FieldReader fields(*options, "stream_options");
  const bool include = fields.Bool("include_usage").value_or(false);
  fields.Accept({"include_obfuscation"});
  fields.RejectUnknown();
  if (!fields.ok()) reader.Fail(fields.error());
  return include;
}

std::vector<engine::SequenceRequest> Choices(const engine::SequenceRequest& request, int64_t n) {
  std::vector<engine::SequenceRequest> choices(static_cast<size_t>(n), request);
  for (size_t i = 0; i < choices.size(); ++i) choices[i].sequence = i;
  return choices;
}

void ReadModel(const ApiContext& context, FieldReader& reader) {
  const auto model = reader.String("model");
  if (!model) return;
  const std::string file = std::filesystem::path(context.engine->info().path).filename().string();
  if (*model == context.model_id || *model == file || *model == "default") return;
  ApiError error =
      FieldError("model", fmt::format("'{}' is not loaded; this server has '{}'", *model, context.model_id));
  error.http_status = 404;
  error.code = "model_not_found";
  reader.Fail(std::move(error));
}

std::optional<ApiError> CheckLength(const ApiContext& context, size_t prompt_tokens, std::string_view param) {
  const int32_t limit = context.engine->info().context;
  if (prompt_tokens <= static_cast<size_t>(limit)) return std::nullopt;
  ApiError error =
      FieldError(param, fmt::format("the prompt has {} tokens, the context {}; shorten it, or start the server with a "
                                    "larger --ctx-size",
                                    prompt_tokens, limit));
  error.code = "context_length_exceeded";
  return error;
}

std::string NewId(std::string_view prefix) {
  static constexpr char kCharacters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::random_device random;
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kCharacters[random() % (sizeof(kCharacters) - 1)];
  return id;
}

}  // namespace bellhop::server
