// What `bench` measured, as tables and as a result file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/options.h"
#include "engine/text_engine.h"
#include "frontends/cli/table.h"

namespace bellhop::cli {

// One way of running the model; every case runs with each.
struct BenchSetup {
  int32_t threads = 0;
  std::string isa;
  double residency = 0;  // percent
};

struct BenchMeasured {
  engine::ModelInfo model;
  std::optional<engine::GpuSummary> gpu = {};  // none: the CPU alone
  BenchSetup setup;
  engine::BenchResult result = {};
  double read_gb_per_s = 0;  // bandwidth of host memory with the same threads

  const engine::BenchCase& test() const { return result.test; }
  std::string Name() const;  // "tg128@d512"
  std::vector<double> Speeds() const;
  double MsPerToken(double quantile) const;
  // Percent of expert bytes in GPU slots.
  double Residency() const { return gpu ? gpu->residency * 100 : setup.residency; }

  // The rest is of generation alone: a prompt chunk reads weights once for many tokens.
  // Weight bytes that a token read, from the counts of a GPU's model, from the shapes of the CPU's.
  std::optional<double> BytesPerToken() const;
  std::optional<double> GbPerS() const;
  // Per token: the weights at the full bandwidth of the memories that they lie in, and with a GPU what its rings cost.
  // A GPU's rates are those that its plan went by.
  std::optional<engine::StepBound> Bound() const;
  std::optional<double> ShareOfReadBound() const;
};

Table BenchMarkdown(const std::vector<BenchMeasured>& results);
Table BenchCsv(const std::vector<BenchMeasured>& results);
nlohmann::ordered_json BenchResultFile(const config::BenchOptions& options, const std::vector<BenchMeasured>& results);
// What a setup's cases were held against, a line each; `first` and the `count` - 1 after it are of one setup.
std::vector<std::string> BenchBoundLines(const BenchMeasured* first, size_t count);

}  // namespace bellhop::cli
