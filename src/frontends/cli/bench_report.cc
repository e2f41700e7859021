#include "frontends/cli/bench_report.h"

#include <algorithm>

#include "base/units.h"
#include "frontends/cli/model_loading.h"
#include "frontends/cli/result_file.h"
#include "frontends/cli/statistics.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;

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

// "CPU amx"; "NVIDIA H200, 50 % + CPU amx" where the CPU computes misses.
std::string Backend(const BenchMeasured& m) {
  const std::string cpu = "CPU " + m.model.isa;
  if (!m.gpu) return cpu;
  if (m.model.experts == 0 || m.gpu->residency >= 1) return m.gpu->device;
  const std::string share = fmt::format("{}, {:.0f} %", m.gpu->device, m.Residency());
  if (m.gpu->lane == "pcie") return share + " + PCIe";
  return share + " + " + cpu + (m.gpu->lane == "split" ? " + PCIe" : "");
}

double HitRate(const engine::BenchResult& result) {
  const auto routes = static_cast<double>(result.hits + result.misses);
  return routes > 0 ? static_cast<double>(result.hits) / routes : 1;
}

double PerStep(const BenchMeasured& m, uint64_t total) {
  const uint64_t steps = m.result.traffic.steps;
  return steps > 0 ? static_cast<double>(total) / static_cast<double>(steps) : 0;
}

std::string Number(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "";
}

// What only a model on a GPU has.
void AddGpu(const BenchMeasured& m, Json* object) {
  const engine::GpuSummary& gpu = *m.gpu;
  const engine::TrafficTotals& traffic = m.result.traffic;
  Json& o = *object;
  o["case"] = m.test().decode ? "decode" : "prompt";
  o["lane"] = gpu.lane;
  o["rows"] = 1;
  o["context"] = m.test().depth + m.test().tokens;
  o["hit_rate"] = HitRate(m.result);
  o["hits"] = m.result.hits;
  o["misses"] = m.result.misses;
  o["steps"] = traffic.steps;
  o["rings_per_step"] = PerStep(m, traffic.rings);
  o["zero_cold_layers"] = PerStep(m, traffic.zero_cold_layers);
  o["hot_experts_per_step"] = PerStep(m, traffic.hot_experts);
  o["cold_experts_per_step"] = PerStep(m, traffic.cold_experts);
  o["hbm_bytes_per_step"] = PerStep(m, traffic.hbm_bytes);
  o["dram_bytes_per_step"] = PerStep(m, traffic.dram_bytes);
  o["pcie_bytes_per_step"] = PerStep(m, traffic.pcie_bytes);
  if (gpu.timed) {
    o["wait_ms_per_step"] = PerStep(m, traffic.wait_ns) * 1e-6;
    if (traffic.rings > 0) {
      o["sync_us_per_ring"] = static_cast<double>(traffic.wait_ns) * 1e-3 / static_cast<double>(traffic.rings);
    }
  }
  if (!m.test().decode) {
    o["rows"] = m.test().tokens;
    o["ttft_s"] = Quantile(m.result.seconds, 0.5);
    return;
  }
  o["predicted_ms"] = gpu.predicted_ms;
  const engine::StepBound bound = *m.Bound();
  o["bound_hbm_ms"] = bound.hbm_ms;
  o["bound_miss_ms"] = bound.miss_ms;
  o["bound_sync_ms"] = bound.sync_ms;
}

Json CaseJson(const BenchMeasured& m) {
  const std::vector<double> speeds = m.Speeds();
  Json object = {{"test", m.Name()},
                 {"model", FileName(m.model.path)},
                 {"format", Formats(m.model)},
                 {"backend", m.gpu ? m.gpu->device : "cpu"},
                 {"isa", m.model.isa},
                 {"threads", m.model.threads},
                 {"residency", m.Residency()},
                 {"tokens", m.test().tokens},
                 {"depth", m.test().depth},
                 {"tokens_per_s", Mean(speeds)},
                 {"tokens_per_s_sd", StandardDeviation(speeds)},
                 {"ms_per_token", m.MsPerToken(0.5)},
                 {"ms_per_token_p90", m.MsPerToken(0.9)},
                 {"seconds", m.result.seconds}};
  if (const auto gb_per_s = m.GbPerS()) {
    object["weight_bytes_per_token"] = static_cast<uint64_t>(*m.BytesPerToken());
    object["gbps"] = *gb_per_s;
  }
  if (const auto bound = m.Bound()) {
    object["bound_ms"] = bound->ms();
    object["bound_tokens_per_s"] = 1e3 / bound->ms();
    object["share_of_bound"] = bound->ms() / m.MsPerToken(0.5);
    object["share_of_read_bound"] = *m.ShareOfReadBound();
  }
  if (m.gpu) AddGpu(m, &object);
  return object;
}

std::string RatesSource(const engine::GpuSummary& gpu) {
  return gpu.calibrated ? "the stored calibration" : "estimates, this machine is not calibrated";
}

}  // namespace

std::string BenchMeasured::Name() const {
  std::string name = fmt::format("{}{}", test().decode ? "tg" : "pp", test().tokens);
  if (test().depth > 0) name += fmt::format("@d{}", test().depth);
  return name;
}

std::vector<double> BenchMeasured::Speeds() const {
  std::vector<double> speeds;
  for (const double s : result.seconds) speeds.push_back(test().tokens / s);
  return speeds;
}

double BenchMeasured::MsPerToken(double quantile) const {
  return Quantile(result.seconds, quantile) * 1e3 / test().tokens;
}

std::optional<double> BenchMeasured::BytesPerToken() const {
  if (!test().decode) return std::nullopt;
  if (!gpu) return static_cast<double>(model.bytes_per_token);
  const engine::TrafficTotals& traffic = result.traffic;
  return PerStep(*this, traffic.hbm_bytes + traffic.dram_bytes + traffic.pcie_bytes);
}

std::optional<double> BenchMeasured::GbPerS() const {
  const std::optional<double> bytes = BytesPerToken();
  if (!bytes) return std::nullopt;
  return *bytes / (MsPerToken(0.5) * 1e6);
}

std::optional<engine::StepBound> BenchMeasured::Bound() const {
  const std::optional<double> bytes = BytesPerToken();
  if (!bytes || *bytes <= 0) return std::nullopt;
  if (gpu) return gpu->Bound(result.traffic);
  if (read_gb_per_s <= 0) return std::nullopt;
  return engine::StepBound{.miss_ms = *bytes / (read_gb_per_s * 1e6)};
}

std::optional<double> BenchMeasured::ShareOfReadBound() const {
  const std::optional<engine::StepBound> bound = Bound();
  if (!bound) return std::nullopt;
  return bound->read_ms() / MsPerToken(0.5);
}

Table BenchMarkdown(const std::vector<BenchMeasured>& results) {
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kLeft, Align::kRight, Align::kRight, Align::kRight,
               Align::kRight, Align::kRight, Align::kRight});
  table.Add({"model", "size", "params", "backend", "threads", "test", "t/s", "ms/token", "GB/s", "of read bound"});
  for (const BenchMeasured& m : results) {
    const std::vector<double> speeds = m.Speeds();
    const std::optional<double> share = m.ShareOfReadBound();
    table.Add({ModelLabel(m.model), FormatBytes(m.model.file_bytes), Parameters(m.model.parameters), Backend(m),
               fmt::format("{}", m.model.threads), m.Name(),
               fmt::format("{:.2f} ± {:.2f}", Mean(speeds), StandardDeviation(speeds)),
               fmt::format("{:.3f}", m.MsPerToken(0.5)), Number(m.GbPerS(), 2),
               share ? fmt::format("{:.0f} %", *share * 100) : ""});
  }
  return table;
}

Table BenchCsv(const std::vector<BenchMeasured>& results) {
  const std::vector<std::string> names = {"model",
                                          "size_bytes",
                                          "params",
                                          "backend",
                                          "isa",
                                          "threads",
                                          "test",
                                          "tokens",
                                          "depth",
                                          "residency",
                                          "tokens_per_s",
                                          "tokens_per_s_sd",
                                          "ms_per_token",
                                          "ms_per_token_p90",
                                          "gbps",
                                          "bound_tokens_per_s",
                                          "share_of_bound",
                                          "lane",
                                          "hit_rate",
                                          "bound_ms",
                                          "predicted_ms",
                                          "rings_per_step"};
  Table table(std::vector<Align>(names.size(), Align::kLeft));
  table.Add(names);
  for (const BenchMeasured& m : results) {
    const std::vector<double> speeds = m.Speeds();
    const auto bound = m.Bound();
    const double ms = m.MsPerToken(0.5);
    const auto gpu = [&](double value) { return m.gpu ? fmt::format("{:.4f}", value) : ""; };
    table.Add({ModelLabel(m.model),
               fmt::format("{}", m.model.file_bytes),
               fmt::format("{}", m.model.parameters),
               m.gpu ? m.gpu->device : "cpu",
               m.model.isa,
               fmt::format("{}", m.model.threads),
               m.Name(),
               fmt::format("{}", m.test().tokens),
               fmt::format("{}", m.test().depth),
               fmt::format("{}", m.Residency()),
               fmt::format("{:.3f}", Mean(speeds)),
               fmt::format("{:.3f}", StandardDeviation(speeds)),
               fmt::format("{:.4f}", m.MsPerToken(0.5)),
               fmt::format("{:.4f}", m.MsPerToken(0.9)),
               Number(m.GbPerS(), 3),
               bound ? fmt::format("{:.3f}", 1e3 / bound->ms()) : "",
               bound ? fmt::format("{:.4f}", bound->ms() / ms) : "",
               m.gpu ? m.gpu->lane : "",
               gpu(HitRate(m.result)),
               bound ? fmt::format("{:.4f}", bound->ms()) : "",
               m.gpu && m.test().decode ? gpu(m.gpu->predicted_ms) : "",
               gpu(PerStep(m, m.result.traffic.rings))});
  }
  return table;
}

Json BenchResultFile(const config::BenchOptions& options, const std::vector<BenchMeasured>& results) {
  double read_gb_per_s = 0;
  Json cases = Json::array();
  for (const BenchMeasured& m : results) {
    read_gb_per_s = std::max(read_gb_per_s, m.read_gb_per_s);
    cases.push_back(CaseJson(m));
  }
  const BenchMeasured& first = results.front();
  const bool decodes = std::any_of(results.begin(), results.end(), [](const auto& m) { return m.test().decode; });
  Json file = ResultFileHead(!first.gpu ? "bench" : decodes ? "residency" : "prefill", options.arguments);
  file["ceilings"] = {{"cpu_read_gbps", read_gb_per_s}};
  if (first.gpu) {
    // All setups run on one machine with one file of rates; the lane may differ.
    file["rates"] = {{"calibrated", first.gpu->calibrated},
                     {"hbm_gbps", first.gpu->hbm_gbps},
                     {"miss_gbps", first.gpu->miss_gbps},
                     {"sync_us", first.gpu->sync_us}};
    if (first.gpu->calibrated) file["ceilings"]["hbm_gbps"] = first.gpu->hbm_gbps;
  }
  file["model"] = {{"file", FileName(first.model.path)},
                   {"name", first.model.name},
                   {"architecture", first.model.architecture},
                   {"file_bytes", first.model.file_bytes},
                   {"parameters", first.model.parameters}};
  file["cases"] = std::move(cases);
  return file;
}

std::vector<std::string> BenchBoundLines(const BenchMeasured* first, size_t count) {
  const engine::ModelInfo& model = first->model;
  if (!first->gpu) {
    return {
        fmt::format("read bandwidth with {} thread(s): {:.1f} GB/s; generation reads {} of weights per token, so at "
                    "most {:.1f} tokens/s",
                    model.threads, first->read_gb_per_s, FormatBytes(model.bytes_per_token),
                    first->read_gb_per_s * 1e9 / static_cast<double>(std::max<uint64_t>(model.bytes_per_token, 1)))};
  }
  const engine::GpuSummary& gpu = *first->gpu;
  std::vector<std::string> lines = {
      fmt::format("{:.1f} % of the experts in GPU slots, misses: {}; rates ({}): GPU memory {:.0f} GB/s, misses {:.1f} "
                  "GB/s, {:.1f} us for each ring",
                  first->Residency(), gpu.lane, RatesSource(gpu), gpu.hbm_gbps, gpu.miss_gbps, gpu.sync_us)};
  for (const BenchMeasured* m = first; m != first + count; ++m) {
    const std::optional<engine::StepBound> bound = m->Bound();
    if (!bound) continue;
    const engine::TrafficTotals& traffic = m->result.traffic;
    const double ms = m->MsPerToken(0.5);
    lines.push_back(
        fmt::format("{}: bound {:.3f} ms ({:.3f} GPU memory, {:.3f} misses, {:.3f} rings), {:.0f} % of it reached; "
                    "predicted {:.3f} ms, measured {:.3f}",
                    m->Name(), bound->ms(), bound->hbm_ms, bound->miss_ms, bound->sync_ms, bound->ms() / ms * 100,
                    gpu.predicted_ms, ms));
    lines.push_back(fmt::format(
        "{}: hit rate {:.1f} %; per step {:.1f} rings, {:.1f} layers without a miss, {:.1f} experts in slots, {:.1f} "
        "without{}",
        m->Name(), HitRate(m->result) * 100, PerStep(*m, traffic.rings), PerStep(*m, traffic.zero_cold_layers),
        PerStep(*m, traffic.hot_experts), PerStep(*m, traffic.cold_experts),
        gpu.timed ? fmt::format(", {:.3f} ms waited for the CPU", PerStep(*m, traffic.wait_ns) * 1e-6) : ""));
  }
  return lines;
}

}  // namespace bellhop::cli
