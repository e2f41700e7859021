#include <algorithm>
#include <optional>

#include "engine/process.h"
#include "frontends/cli/bench_report.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/model_loading.h"
#include "frontends/cli/progress.h"

namespace bellhop::cli {
namespace {

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

std::vector<BenchSetup> Setups(const config::BenchOptions& options) {
  std::vector<BenchSetup> setups;
  for (const double residency : options.residency) {
    for (const std::string& isa : options.isas) {
      for (const int32_t threads : options.threads) setups.push_back({threads, isa, residency});
    }
  }
  return setups;
}

config::EngineConfig Configure(const config::BenchOptions& options, const BenchSetup& setup,
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

Status RunSetup(const config::BenchOptions& options, const BenchSetup& setup,
                const std::vector<engine::BenchCase>& cases, const std::function<void(const std::string&)>& starting,
                Console& console, std::vector<BenchMeasured>* results) {
  auto model = LoadModel(Configure(options, setup, cases), console);
  if (!model.ok() && setup.residency > 0) {
    return model.status().WithContext(fmt::format("--residency {}", setup.residency));
  }
  BELLHOP_TRY(model.status());
  engine::TextEngine& engine = *model->engine;
  BELLHOP_TRY_ASSIGN(const double read_gb_per_s, engine.MeasureReadBandwidth(false));
  const size_t first = results->size();
  for (const engine::BenchCase& test : cases) {
    BenchMeasured measured{.model = engine.info(), .setup = setup, .read_gb_per_s = read_gb_per_s};
    if (engine.gpu() != nullptr) measured.gpu = *engine.gpu();
    measured.result.test = test;
    starting(measured.Name());
    BELLHOP_TRY_ASSIGN(measured.result, engine.Bench(test, options.repetitions));
    results->push_back(std::move(measured));
  }
  // The higher of the two is the bound: a neighbour that takes bandwidth for a moment must not flatter the model.
  BELLHOP_TRY_ASSIGN(const double read_again, engine.MeasureReadBandwidth(false));
  for (size_t i = first; i < results->size(); ++i) (*results)[i].read_gb_per_s = std::max(read_gb_per_s, read_again);
  return Status();
}

}  // namespace

Status Bench(const config::BenchOptions& options, Console& console) {
  if (!options.out.empty()) BELLHOP_TRY(engine::CheckFolderOf(options.out));
  const std::vector<engine::BenchCase> cases = Cases(options);
  if (cases.empty()) return InvalidArgument("nothing to measure: --pp and --tg are both 0");
  const std::vector<BenchSetup> setups = Setups(options);
  const auto total = static_cast<int64_t>(setups.size() * cases.size());
  std::vector<BenchMeasured> results;
  Progress progress(console, "bench");
  for (const BenchSetup& setup : setups) {
    BELLHOP_TRY(RunSetup(
        options, setup, cases,
        [&](const std::string& name) { progress.Update(static_cast<int64_t>(results.size()), total, name); }, console,
        &results));
    progress.Clear();
  }
  switch (options.format) {
    case config::BenchFormat::kJson: console.WriteJson(BenchResultFile(options, results)); break;
    case config::BenchFormat::kCsv: console.Write(BenchCsv(results).Csv()); break;
    case config::BenchFormat::kMarkdown:
      console.Write(BenchMarkdown(results).Markdown());
      for (size_t i = 0; i < results.size(); i += cases.size()) {
        console.Write("\n");
        for (const std::string& line : BenchBoundLines(&results[i], cases.size())) console.Print("{}\n", line);
      }
      break;
  }
  if (options.out.empty()) return Status();
  return engine::WriteWholeFile(options.out, PrettyJson(BenchResultFile(options, results)) + "\n");
}

}  // namespace bellhop::cli
