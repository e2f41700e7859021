#include <algorithm>
#include <optional>

#include "engine/opbench_seed.h"
#include "engine/process.h"
#include "frontends/cli/opbench_report.h"
#include "frontends/cli/result_file.h"
#include "frontends/cli/statistics.h"

namespace bellhop::cli {
namespace {

using engine::GpuOpbenchCase;
using engine::OpbenchMode;
using Json = nlohmann::ordered_json;

struct Figures {
  const GpuOpbenchCase& test;
  double hbm_gbps;

  static double Ms(const std::vector<double>& us, double quantile) { return Quantile(us, quantile) / 1e3; }
  // What a layer takes longer because it rings.
  double RingUs() const { return Quantile(test.layer_us, 0.5) - Quantile(test.quiet_us, 0.5); }
  double KernelMs() const { return Ms(test.kernel_us, 0.5); }
  double Gbps() const { return test.kernel_bytes() / (KernelMs() * 1e6); }
  double Tflops() const { return test.kernel_flops() / (KernelMs() * 1e9); }
  // What of the kernels' time reading weights or multiplying takes at least, whichever is more. Weights that come over
  // PCIe have a bound of their own, which was not measured.
  std::optional<double> Share() const {
    if (test.misses > 0) return std::nullopt;
    return std::max(Gbps() / hbm_gbps, Tflops() / engine::kBf16Tflops);
  }
};

std::string Number(const std::optional<double>& value, const char* none = "") {
  return value ? fmt::format("{:.3g}", *value) : none;
}

}  // namespace

Json GpuCaseJson(const GpuOpbenchCase& test, double hbm_gbps) {
  const Figures f{test, hbm_gbps};
  const std::optional<double> share = f.Share(), seed = engine::SeedLayerMs(test);
  Json json = {{"format", test.format},
               {"hidden", test.hidden},
               {"inter", test.inter},
               {"experts", test.experts},
               {"topk", test.topk},
               {"layers", test.layers},
               {"mode", engine::OpbenchModeName(test.mode)},
               {"hit_rate", test.measured_hit_rate()},
               {"hit_rate_asked", test.hit_rate},
               {"rows", test.rows},
               {"class", test.prompt ? "prompt" : "decode"},
               {"layer_ms", Figures::Ms(test.layer_us, 0.5)},
               {"layer_ms_p90", Figures::Ms(test.layer_us, 0.9)},
               {"layer_ms_min", Figures::Ms(test.layer_us, 0)},
               {"kernel_ms", f.KernelMs()},
               {"kernel_ms_p90", Figures::Ms(test.kernel_us, 0.9)},
               {"router_ms", Figures::Ms(test.router_us, 0.5)},
               {"reps", test.layer_us.size()},
               {"distinct_experts", test.hot_experts + test.cold_experts},
               {"cold_experts", test.cold_experts},
               {"expert_bytes", test.expert_bytes},
               {"weight_bytes", test.weight_bytes()},
               {"gbps", f.Gbps()},
               {"tflops", f.Tflops()},
               {"share", share ? Json(*share) : Json()},
               {"seed_ms", seed ? Json(*seed) : Json()},
               {"ratio_to_seed", seed ? Json(*seed / Figures::Ms(test.layer_us, 0.5)) : Json()}};
  if (!test.quiet_us.empty()) json["ring_us"] = f.RingUs();
  return json;
}

Json GpuResultFile(const config::OpbenchOptions& options, const engine::GpuOpbenchReport& report) {
  Json file = ResultFileHead("opbench", options.arguments);
  const double hbm = Quantile(report.hbm_gbps, 0.5);
  file["ceilings"] = {{"hbm_gbps", hbm},
                      {"hbm_gbps_min", Quantile(report.hbm_gbps, 0)},
                      {"hbm_gbps_max", Quantile(report.hbm_gbps, 1)},
                      {"bf16_tflops", engine::kBf16Tflops},
                      {"bf16_tflops_measured", false}};
  file["notes"] = report.notes;
  file["complete"] = !report.cancelled && report.failure.ok();
  file["cases"] = Json::array();
  for (const GpuOpbenchCase& test : report.cases) file["cases"].push_back(GpuCaseJson(test, hbm));
  return file;
}

std::string GpuMarkdown(const engine::GpuOpbenchReport& report) {
  Table table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kLeft, Align::kRight, Align::kRight,
               Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
               Align::kRight});
  table.Add({"format", "mode", "hits", "rows", "class", "layer ms", "p90", "router ms", "kernels ms", "experts", "MB",
             "GB/s", "TFLOP/s", "of bound", "seed ms"});
  const double hbm = Quantile(report.hbm_gbps, 0.5);
  bool shapes_differ = false;
  for (const GpuOpbenchCase& test : report.cases) {
    const Figures f{test, hbm};
    const std::optional<double> share = f.Share();
    const GpuOpbenchCase& first = report.cases.front();
    shapes_differ = shapes_differ || test.hidden != first.hidden || test.inter != first.inter;
    table.Add({test.format, std::string(engine::OpbenchModeName(test.mode)),
               fmt::format("{:.0f} %", test.measured_hit_rate() * 100), fmt::format("{}", test.rows),
               test.prompt ? "prompt" : "decode", fmt::format("{:.4f}", Figures::Ms(test.layer_us, 0.5)),
               fmt::format("{:.4f}", Figures::Ms(test.layer_us, 0.9)),
               fmt::format("{:.4f}", Figures::Ms(test.router_us, 0.5)), fmt::format("{:.4f}", f.KernelMs()),
               fmt::format("{:.1f}", test.hot_experts + test.cold_experts),
               fmt::format("{:.1f}", test.weight_bytes() / 1e6), fmt::format("{:.0f}", f.Gbps()),
               fmt::format("{:.1f}", f.Tflops()), share ? fmt::format("{:.0f} %", *share * 100) : "",
               Number(engine::SeedLayerMs(test))});
  }
  std::string text = table.Markdown();
  if (!report.cases.empty()) {
    const GpuOpbenchCase& first = report.cases.front();
    text += fmt::format(
        "\n{} layers of hidden {} x inter {}{}: {} experts, {} of a row; times of a layer, medians of the replays\n",
        first.layers, first.hidden, first.inter, shapes_differ ? " (others: see the notes)" : "", first.experts,
        first.topk);
  }
  for (const GpuOpbenchCase& test : report.cases) {
    if (test.quiet_us.empty()) continue;
    text += fmt::format("{}, {} rows: a ring adds {:.1f} us to {:.1f}\n", test.format, test.rows,
                        Figures{test, hbm}.RingUs(), Quantile(test.quiet_us, 0.5));
  }
  text += fmt::format(
      "read bandwidth of the device's memory: {:.0f} GB/s, {:.0f} to {:.0f} in {} measurements; products: {:.0f} "
      "TFLOP/s, an H200's in bf16, not measured\n",
      hbm, Quantile(report.hbm_gbps, 0), Quantile(report.hbm_gbps, 1), report.hbm_gbps.size(), engine::kBf16Tflops);
  return text;
}

Status WriteGpuReport(const config::OpbenchOptions& options, const engine::GpuOpbenchReport& report, Console& console) {
  for (const std::string& note : report.notes) console.Say("note: " + OneLine(note));
  if (report.cancelled) console.SayAlways("interrupted: these are the cases that were complete");
  switch (options.format) {
    case config::BenchFormat::kJson: console.WriteJson(GpuResultFile(options, report)); break;
    case config::BenchFormat::kCsv: {
      std::vector<Json> cases;
      for (const GpuOpbenchCase& test : report.cases) {
        cases.push_back(GpuCaseJson(test, Quantile(report.hbm_gbps, 0.5)));
      }
      console.Write(CsvOfCases(cases).Csv());
      break;
    }
    case config::BenchFormat::kMarkdown: console.Write(GpuMarkdown(report)); break;
  }
  if (!options.out.empty()) {
    BELLHOP_TRY(engine::WriteWholeFile(options.out, PrettyJson(GpuResultFile(options, report)) + "\n"));
  }
  return report.failure;
}

}  // namespace bellhop::cli
