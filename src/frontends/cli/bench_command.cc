#include <algorithm>
#include <optional>

#include "base/units.h"
#include "engine/process.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/model_loading.h"
#include "frontends/cli/progress.h"
#include "frontends/cli/result_file.h"
#include "frontends/cli/statistics.h"
#include "frontends/cli/table.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;

// One way of running the model; every case runs with each.
struct Setup {
  int32_t threads = 0;
  std::string isa;
  double residency = 0;  // percent
};

struct Measured {
  engine::ModelInfo model;
  Setup setup;
  engine::BenchCase test;
  std::vector<double> seconds;
  double read_gb_per_s = 0;  // memory bandwidth with the same threads

  std::string Name() const {
    std::string name = fmt::format("{}{}", test.decode ? "tg" : "pp", test.tokens);
    if (test.depth > 0) name += fmt::format("@d{}", test.depth);
    return name;
  }
  std::vector<double> Speeds() const {
    std::vector<double> speeds;
    for (const double s : seconds) speeds.push_back(test.tokens / s);
    return speeds;
  }
  double MsPerToken(double quantile) const { return Quantile(seconds, quantile) * 1e3 / test.tokens; }
  // What generation would reach if it read its weights at the full read bandwidth and did nothing else.
  std::optional<double> BoundTokensPerS() const {
    if (!test.decode || read_gb_per_s <= 0 || model.bytes_per_token == 0) return std::nullopt;
    return read_gb_per_s * 1e9 / static_cast<double>(model.bytes_per_token);
  }
  // Weights read by generation; a prompt chunk reads them once for many tokens, so there the figure says nothing.
  std::optional<double> GbPerS() const {
    if (!test.decode) return std::nullopt;
    return static_cast<double>(model.bytes_per_token) / (MsPerToken(0.5) * 1e6);
  }
  std::optional<double> ShareOfBound() const {
    const std::optional<double> gb_per_s = GbPerS();
    if (!gb_per_s || read_gb_per_s <= 0) return std::nullopt;
    return *gb_per_s / read_gb_per_s;
  }
};

std::vector<engine::BenchCase> Cases(const config::BenchOptions& options) {
  std::vector<engine::BenchCase> cases;
  for (const int32_t depth : options.depths) {
    for (const int32_t tokens : options.prompt_tokens) {
      if (tokens > 0) cases.push_back({.tokens = tokens, .depth = depth, .decode = false});
    }
    for (const int32_t tokens : options.decode_tokens) {
      if (tokens > 0) cases.push_back({.tokens = tokens, .depth = depth, .decode = true});
    }
  }
  return cases;
}

std::vector<Setup> Setups(const config::BenchOptions& options) {
  std::vector<Setup> setups;
  for (const double residency : options.residency) {
    for (const std::string& isa : options.isas) {
      for (const int32_t threads : options.threads) setups.push_back({threads, isa, residency});
    }
  }
  return setups;
}

config::EngineConfig Configure(const config::BenchOptions& options, const Setup& setup,
                               const std::vector<engine::BenchCase>& cases) {
  config::EngineConfig config = options.engine;
  config.runtime.threads = setup.threads;
  config.runtime.isa = setup.isa;
  if (setup.residency > 0) config.runtime.gpu_experts_percent = setup.residency;
  if (config.context.context_tokens == 0) {
    for (const engine::BenchCase& test : cases) {
      config.context.context_tokens = std::max(config.context.context_tokens,
                                               static_cast<uint32_t>(test.tokens) + static_cast<uint32_t>(test.depth));
    }
  }
  return config;
}

Status RunSetup(const config::BenchOptions& options, const Setup& setup, const std::vector<engine::BenchCase>& cases,
                const std::function<void(const std::string&)>& starting, Console& console,
                std::vector<Measured>* results) {
  auto model = LoadModel(Configure(options, setup, cases), console);
  if (!model.ok() && setup.residency > 0) {
    return model.status().WithContext(fmt::format("--residency {}", setup.residency));
  }
  BELLHOP_TRY(model.status());
  engine::TextEngine& engine = *model->engine;
  BELLHOP_TRY_ASSIGN(const double read_gb_per_s, engine.MeasureReadBandwidth(false));
  const size_t first = results->size();
  for (const engine::BenchCase& test : cases) {
    Measured measured{engine.info(), setup, test, {}, read_gb_per_s};
    starting(measured.Name());
    BELLHOP_TRY_ASSIGN(engine::BenchResult result, engine.Bench(test, options.repetitions));
    measured.seconds = std::move(result.seconds);
    results->push_back(std::move(measured));
  }
  // The higher of the two is the bound: a neighbour that takes bandwidth for a moment must not flatter the model.
  BELLHOP_TRY_ASSIGN(const double read_again, engine.MeasureReadBandwidth(false));
  for (size_t i = first; i < results->size(); ++i) (*results)[i].read_gb_per_s = std::max(read_gb_per_s, read_again);
  return Status();
}

std::string Formats(const engine::ModelInfo& model) {
  return model.expert_formats.empty() ? model.dense_formats : model.expert_formats;
}

std::string ModelLabel(const engine::ModelInfo& model) {
  return fmt::format("{} {}", model.name.empty() ? FileName(model.path) : model.name, Formats(model));
}

std::string Parameters(uint64_t count) {
  const auto value = static_cast<double>(count);
  return value >= 1e9 ? fmt::format("{:.2f} B", value / 1e9) : fmt::format("{:.2f} M", value / 1e6);
}

Table MarkdownTable(const std::vector<Measured>& results) {
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kLeft, Align::kRight, Align::kRight, Align::kRight,
               Align::kRight, Align::kRight, Align::kRight});
  table.Add({"model", "size", "params", "backend", "threads", "test", "t/s", "ms/token", "GB/s", "of read bound"});
  for (const Measured& m : results) {
    const std::vector<double> speeds = m.Speeds();
    const auto gb_per_s = m.GbPerS(), share = m.ShareOfBound();
    table.Add({ModelLabel(m.model), FormatBytes(m.model.file_bytes), Parameters(m.model.parameters),
               "CPU " + m.model.isa, fmt::format("{}", m.model.threads), m.Name(),
               fmt::format("{:.2f} ± {:.2f}", Mean(speeds), StandardDeviation(speeds)),
               fmt::format("{:.3f}", m.MsPerToken(0.5)), gb_per_s ? fmt::format("{:.2f}", *gb_per_s) : "",
               share ? fmt::format("{:.0f} %", *share * 100) : ""});
  }
  return table;
}

Table CsvTable(const std::vector<Measured>& results) {
  Table table(std::vector<Align>(17, Align::kLeft));
  table.Add({"model", "size_bytes", "params", "backend", "isa", "threads", "test", "tokens", "depth", "residency",
             "tokens_per_s", "tokens_per_s_sd", "ms_per_token", "ms_per_token_p90", "gbps", "bound_tokens_per_s",
             "share_of_bound"});
  for (const Measured& m : results) {
    const std::vector<double> speeds = m.Speeds();
    const auto gb_per_s = m.GbPerS(), share = m.ShareOfBound(), bound = m.BoundTokensPerS();
    table.Add({ModelLabel(m.model), fmt::format("{}", m.model.file_bytes), fmt::format("{}", m.model.parameters), "cpu",
               m.model.isa, fmt::format("{}", m.model.threads), m.Name(), fmt::format("{}", m.test.tokens),
               fmt::format("{}", m.test.depth), fmt::format("{}", m.setup.residency),
               fmt::format("{:.3f}", Mean(speeds)), fmt::format("{:.3f}", StandardDeviation(speeds)),
               fmt::format("{:.4f}", m.MsPerToken(0.5)), fmt::format("{:.4f}", m.MsPerToken(0.9)),
               gb_per_s ? fmt::format("{:.3f}", *gb_per_s) : "", bound ? fmt::format("{:.3f}", *bound) : "",
               share ? fmt::format("{:.4f}", *share) : ""});
  }
  return table;
}

Json CaseJson(const Measured& m) {
  const std::vector<double> speeds = m.Speeds();
  Json object = {{"test", m.Name()},
                 {"model", FileName(m.model.path)},
                 {"format", Formats(m.model)},
                 {"isa", m.model.isa},
                 {"threads", m.model.threads},
                 {"residency", m.setup.residency},
                 {"tokens", m.test.tokens},
                 {"depth", m.test.depth},
                 {"tokens_per_s", Mean(speeds)},
                 {"tokens_per_s_sd", StandardDeviation(speeds)},
                 {"ms_per_token", m.MsPerToken(0.5)},
                 {"ms_per_token_p90", m.MsPerToken(0.9)},
                 {"seconds", m.seconds}};
  if (const auto gb_per_s = m.GbPerS()) {
    object["weight_bytes_per_token"] = m.model.bytes_per_token;
    object["gbps"] = *gb_per_s;
  }
  if (const auto bound = m.BoundTokensPerS()) object["bound_tokens_per_s"] = *bound;
  if (const auto share = m.ShareOfBound()) object["share_of_bound"] = *share;
  return object;
}

Json ResultFile(const config::BenchOptions& options, const std::vector<Measured>& results) {
  double read_gb_per_s = 0;
  Json cases = Json::array();
  for (const Measured& m : results) {
    read_gb_per_s = std::max(read_gb_per_s, m.read_gb_per_s);
    cases.push_back(CaseJson(m));
  }
  const engine::ModelInfo& model = results.front().model;
  Json file = ResultFileHead("bench", options.arguments);
  file["ceilings"] = {{"cpu_read_gbps", read_gb_per_s}};
  file["model"] = {{"file", FileName(model.path)},
                   {"name", model.name},
                   {"architecture", model.architecture},
                   {"file_bytes", model.file_bytes},
                   {"parameters", model.parameters}};
  file["cases"] = std::move(cases);
  return file;
}

}  // namespace

Status Bench(const config::BenchOptions& options, Console& console) {
  if (!options.out.empty()) BELLHOP_TRY(engine::CheckFolderOf(options.out));
  const std::vector<engine::BenchCase> cases = Cases(options);
  if (cases.empty()) return InvalidArgument("nothing to measure: --pp and --tg are both 0");
  const std::vector<Setup> setups = Setups(options);
  const auto total = static_cast<int64_t>(setups.size() * cases.size());
  std::vector<Measured> results;
  Progress progress(console, "bench");
  for (const Setup& setup : setups) {
    BELLHOP_TRY(RunSetup(
        options, setup, cases,
        [&](const std::string& name) { progress.Update(static_cast<int64_t>(results.size()), total, name); }, console,
        &results));
    progress.Clear();
  }
  switch (options.format) {
    case config::BenchFormat::kJson: console.WriteJson(ResultFile(options, results)); break;
    case config::BenchFormat::kCsv: console.Write(CsvTable(results).Csv()); break;
    case config::BenchFormat::kMarkdown:
      console.Write(MarkdownTable(results).Markdown());
      for (size_t i = 0; i < results.size(); i += cases.size()) {
        const engine::ModelInfo& model = results[i].model;
        console.Print(
            "\nread bandwidth with {} thread(s): {:.1f} GB/s; generation reads {} of weights per token, so at "
            "most {:.1f} tokens/s\n",
            model.threads, results[i].read_gb_per_s, FormatBytes(model.bytes_per_token),
            results[i].read_gb_per_s * 1e9 / static_cast<double>(std::max<uint64_t>(model.bytes_per_token, 1)));
      }
      break;
  }
  if (options.out.empty()) return Status();
  return engine::WriteWholeFile(options.out, PrettyJson(ResultFile(options, results)) + "\n");
}

}  // namespace bellhop::cli
