#include "frontends/cli/generation.h"

#include <algorithm>
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

// What a GPU's model did, for people.
std::vector<std::string> GpuLines(const engine::GpuSummary& gpu, const engine::TrafficTotals& traffic,
                                  double ms_per_token) {
  const auto steps = static_cast<double>(std::max<uint64_t>(traffic.steps, 1));
  return {fmt::format("gpu:     {}, misses: {}; predicted {:.2f} ms/token, measured {:.2f}", gpu.device, gpu.lane,
                      gpu.predicted_ms, ms_per_token),
          fmt::format("steps:   {}; experts run: {} in slots, {} without; {} rings ({:.1f} per step), {} layers "
                      "without a miss; waited for the CPU: {}",
                      traffic.steps, traffic.hot_experts, traffic.cold_experts, traffic.rings,
                      static_cast<double>(traffic.rings) / steps, traffic.zero_cold_layers,
                      gpu.timed ? fmt::format("{:.2f} ms", static_cast<double>(traffic.wait_ns) * 1e-6)
                                : "not measured (--timers)"),
          fmt::format("read:    {} of GPU memory, {} of host memory, {} over PCIe", FormatBytes(traffic.hbm_bytes),
                      FormatBytes(traffic.dram_bytes), FormatBytes(traffic.pcie_bytes))};
}

double MsPerToken(const engine::GenerateResult& result) {
  return result.decode_tokens_per_s() > 0 ? 1e3 / result.decode_tokens_per_s() : 0;
}

nlohmann::ordered_json GpuJson(const engine::GpuSummary& gpu, const engine::TrafficTotals& traffic,
                               double ms_per_token) {
  nlohmann::ordered_json object = {
      {"device", gpu.device},
      {"lane", gpu.lane},
      {"residency", gpu.residency * 100},
      {"predicted_ms", gpu.predicted_ms},
      {"ms_per_token", ms_per_token},
      {"steps", traffic.steps},
      {"rings", traffic.rings},
      {"zero_cold_layers", traffic.zero_cold_layers},
      {"hot_experts", traffic.hot_experts},
      {"cold_experts", traffic.cold_experts},
      {"bytes", {{"hbm", traffic.hbm_bytes}, {"dram", traffic.dram_bytes}, {"pcie", traffic.pcie_bytes}}},
      {"rates",
       {{"calibrated", gpu.calibrated},
        {"hbm_gbps", gpu.hbm_gbps},
        {"miss_gbps", gpu.miss_gbps},
        {"sync_us", gpu.sync_us}}},
  };
  if (gpu.timed) object["wait_ms"] = static_cast<double>(traffic.wait_ns) * 1e-6;
  return object;
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
  lines.push_back(fmt::format("load:    {:.1f} ms", model_.load_ms));
  lines.push_back(fmt::format("prompt:  {} tokens in {:.1f} ms, {:.1f} tokens/s{}", result.prompt_tokens,
                              result.prompt_ms, result.prompt_tokens_per_s(),
                              result.reused_tokens > 0 ? fmt::format(" ({} reused)", result.reused_tokens) : ""));
  lines.push_back(fmt::format("decode:  {} tokens in {:.1f} ms, {:.1f} tokens/s, {:.2f} ms/token", result.ids.size(),
                              result.decode_ms, result.decode_tokens_per_s(), MsPerToken(result)));
  const engine::ExpertStats experts = engine().Experts();
  if (experts.total > 0) {
    lines.push_back(fmt::format("experts: {} hits, {} misses, hit rate {:.1f} %; {} of {} in GPU slots, {} on the CPU",
                                experts.hits, experts.misses, experts.hit_rate() * 100, experts.resident, experts.total,
                                experts.total - experts.resident));
  }
  if (engine().gpu() != nullptr) {
    for (std::string& line : GpuLines(*engine().gpu(), engine().Traffic(), MsPerToken(result))) {
      lines.push_back(std::move(line));
    }
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
  nlohmann::ordered_json object = {
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
      {"backend",
       {{"device", engine().gpu() != nullptr ? engine().gpu()->device : "cpu"},
        {"isa", info.isa},
        {"threads", info.threads},
        {"kv_type", info.kv_type},
        {"act", info.act}}},
  };
  if (engine().gpu() != nullptr) {
    object["gpu"] = GpuJson(*engine().gpu(), engine().Traffic(), MsPerToken(result));
  }
  return object;
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
