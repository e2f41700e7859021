#include "frontends/cli/generation.h"

#include <random>
#include <utility>

#include "base/units.h"

namespace bellhop::cli {
namespace {

// 32 bits: JSON readers that hold numbers as doubles keep them exactly.
uint64_t RandomSeed() { return std::random_device()(); }

decode::SamplingParams ToParams(const config::SamplingOptions& options, uint64_t seed) {
  return {
      .temperature = options.temperature,
      .top_p = options.top_p,
      .min_p = options.min_p,
      .top_k = options.top_k,
      .repeat_penalty = options.repeat_penalty,
      .presence_penalty = options.presence_penalty,
      .frequency_penalty = options.frequency_penalty,
      .repeat_last_n = options.repeat_last_n,
      .seed = seed,
      .greedy = options.greedy,
      .logit_bias = options.logit_bias,
  };
}

}  // namespace

Generator::Generator(const config::RunOptions& options, const LoadedModel& model, Console& console)
    : options_(options), model_(model), console_(console), seed_(options.sampling.seed.value_or(RandomSeed())) {}

Result<std::vector<TokenId>> Generator::ChatTokens(const nlohmann::ordered_json& messages) const {
  BELLHOP_TRY_ASSIGN(const std::string rendered, engine().RenderChat(messages, true, nlohmann::ordered_json::object()));
  return engine().TokenizeChat(rendered);
}

Result<engine::GenerateResult> Generator::Generate(std::vector<TokenId> prompt, const engine::Interrupts& interrupts) {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling = ToParams(options_.sampling, seed_);
  request.max_tokens = options_.predict;
  request.stop = options_.stop;
  request.ignore_eos = options_.ignore_eos;
  request.special = options_.special;
  request.cancel = &interrupts.flag();
  bool ends_line = true;
  if (!options_.output.json) {
    request.on_text = [&](std::string_view text) {
      console_.Write(text);
      console_.Flush();
      ends_line = text.ends_with('\n');
    };
  }
  auto result = engine().Generate(request);
  if (!options_.output.json && (!ends_line || (result.ok() && result->text.empty()))) console_.Write("\n");
  console_.Flush();
  return result;
}

std::vector<std::string> Generator::StatsLines(const engine::GenerateResult& result) const {
  std::vector<std::string> lines;
  const double per_token = result.decode_tokens_per_s() > 0 ? 1e3 / result.decode_tokens_per_s() : 0;
  lines.push_back(fmt::format("load:    {:.1f} ms", model_.load_ms));
  lines.push_back(fmt::format("prompt:  {} tokens in {:.1f} ms, {:.1f} tokens/s{}", result.prompt_tokens,
                              result.prompt_ms, result.prompt_tokens_per_s(),
                              result.reused_tokens > 0 ? fmt::format(" ({} reused)", result.reused_tokens) : ""));
  lines.push_back(fmt::format("decode:  {} tokens in {:.1f} ms, {:.1f} tokens/s, {:.2f} ms/token", result.ids.size(),
                              result.decode_ms, result.decode_tokens_per_s(), per_token));
  const engine::ExpertStats experts = engine().Experts();
  if (experts.total > 0) {
    lines.push_back(fmt::format("experts: {} hits, {} misses, hit rate {:.1f} %; {} of {} in GPU slots, {} on the CPU",
                                experts.hits, experts.misses, experts.hit_rate() * 100, experts.resident, experts.total,
                                experts.total - experts.resident));
  }
  if (result.context_shifts > 0) lines.push_back(fmt::format("context: shifted {} times", result.context_shifts));
  lines.push_back(fmt::format("memory:  {} at most", FormatBytes(engine::PeakResidentBytes())));
  lines.push_back(fmt::format("end:     {}, seed {}", engine::FinishReasonName(result.reason), seed_));
  return lines;
}

nlohmann::ordered_json Generator::ToJson(const std::vector<TokenId>& prompt,
                                         const engine::GenerateResult& result) const {
  const engine::ModelInfo& info = engine().info();
  const engine::ExpertStats experts = engine().Experts();
  return {
      {"model", FileName(info.path)},
      {"prompt_ids", prompt},
      {"ids", result.ids},
      {"text", result.text},
      {"finish_reason", engine::FinishReasonName(result.reason)},
      {"seed", seed_},
      {"timings",
       {{"load_ms", model_.load_ms},
        {"prompt_ms", result.prompt_ms},
        {"decode_ms", result.decode_ms},
        {"prompt_tokens_per_s", result.prompt_tokens_per_s()},
        {"decode_tokens_per_s", result.decode_tokens_per_s()}}},
      {"experts",
       {{"hits", experts.hits},
        {"misses", experts.misses},
        {"hit_rate", experts.hit_rate()},
        {"resident", experts.resident},
        {"total", experts.total}}},
      {"context", {{"size", info.context}, {"shifts", result.context_shifts}, {"reused", result.reused_tokens}}},
      {"backend", {{"isa", info.isa}, {"threads", info.threads}, {"kv_type", info.kv_type}, {"act", info.act}}},
  };
}

std::string Generator::EndNote(const engine::GenerateResult& result) const {
  const bool reached = options_.predict >= 0 && result.ids.size() >= static_cast<size_t>(options_.predict);
  if (result.reason != engine::FinishReason::kLength || reached) return "";
  return fmt::format(
      "the context of {} tokens is full; --ctx-size raises it, --context-shift goes on without its oldest "
      "half",
      engine().info().context);
}

}  // namespace bellhop::cli
