#include <algorithm>

#include "base/units.h"
#include "engine/opbench.h"
#include "engine/process.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/opbench_report.h"
#include "frontends/cli/progress.h"
#include "frontends/cli/result_file.h"
#include "frontends/cli/statistics.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;

// A case with the figures that follow from its times and from the read bandwidth of its thread count.
struct Row {
  const engine::OpbenchCase* test;
  double read_gbps;

  // The reference kernels may have computed a part of the call only.
  double Scale() const { return test->isa == "reference" ? 1 / test->scalar_share : 1; }
  double Us(double quantile) const { return Quantile(test->us, quantile) * Scale(); }
  double Gbps() const { return static_cast<double>(test->weight_bytes) / (Us(0.5) * 1e3); }
  double Share() const { return Gbps() / read_gbps; }
  double RatioToScalar() const { return Quantile(test->scalar_us, 0.5) / test->scalar_share / Us(0.5); }
  double Tflops() const { return test->flops / (Us(0.5) * 1e6); }
  double OverDramUs() const { return Us(0.5) - static_cast<double>(test->weight_bytes) / (read_gbps * 1e3); }
};

const engine::OpbenchBandwidth& BandwidthOf(const engine::OpbenchReport& report, int32_t threads) {
  return *std::find_if(report.bandwidth.begin(), report.bandwidth.end(),
                       [&](const engine::OpbenchBandwidth& b) { return b.threads == threads; });
}

std::vector<Row> Rows(const engine::OpbenchReport& report) {
  std::vector<Row> rows;
  for (const engine::OpbenchCase& test : report.cases) {
    rows.push_back({&test, Quantile(BandwidthOf(report, test.threads).gbps, 0.5)});
  }
  return rows;
}

Table MarkdownTable(const std::vector<Row>& rows) {
  Table table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kLeft, Align::kRight, Align::kRight,
               Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.Add({"format", "isa", "threads", "rows", "class", "us", "p90", "GB/s", "of read bound", "over DRAM us",
             "x scalar", "TFLOP/s"});
  for (const Row& row : rows) {
    table.Add({row.test->format, row.test->isa, fmt::format("{}", row.test->threads), fmt::format("{}", row.test->rows),
               row.test->prompt ? "prompt" : "decode", fmt::format("{:.1f}", row.Us(0.5)),
               fmt::format("{:.1f}", row.Us(0.9)), fmt::format("{:.2f}", row.Gbps()),
               fmt::format("{:.0f} %", row.Share() * 100), fmt::format("{:.1f}", row.OverDramUs()),
               fmt::format("{:.2f}", row.RatioToScalar()), fmt::format("{:.3f}", row.Tflops())});
  }
  return table;
}

Json CaseJson(const config::OpbenchOptions& options, const Row& row) {
  const engine::OpbenchCase& test = *row.test;
  Json object = {{"format", test.format},
                 {"isa", test.isa},
                 {"kernel", test.kernel},
                 {"threads", test.threads},
                 {"rows", test.rows},
                 {"class", test.prompt ? "prompt" : "decode"},
                 {"hidden", test.hidden},
                 {"inter", test.inter},
                 {"active", options.active},
                 {"topk", options.topk == 0 ? options.active : options.topk},
                 {"experts", test.experts},
                 {"distinct_experts", test.distinct_experts},
                 {"weight_bytes", test.weight_bytes},
                 {"us", row.Us(0.5)},
                 {"us_p90", row.Us(0.9)},
                 {"us_min", row.Us(0)},
                 {"reps", test.us.size()},
                 {"gbps", row.Gbps()},
                 {"share", row.Share()},
                 {"over_dram_us", row.OverDramUs()},
                 {"tflops", row.Tflops()},
                 {"ratio_to_scalar", row.RatioToScalar()}};
  if (test.scalar_share < 1) object["scalar_share"] = test.scalar_share;
  return object;
}

Json ResultFile(const config::OpbenchOptions& options, const engine::OpbenchReport& report,
                const std::vector<Row>& rows) {
  Json file = ResultFileHead("cpu_cold", options.arguments);
  std::vector<double> ceilings;
  Json bandwidth = Json::array();
  for (const engine::OpbenchBandwidth& b : report.bandwidth) {
    if (b.gbps.empty()) continue;
    ceilings.push_back(Quantile(b.gbps, 0.5));
    bandwidth.push_back({{"threads", b.threads},
                         {"cpu_read_gbps", ceilings.back()},
                         {"min", Quantile(b.gbps, 0)},
                         {"max", Quantile(b.gbps, 1)},
                         {"measurements", b.gbps.size()}});
  }
  file["ceilings"] = {{"cpu_read_gbps", Quantile(ceilings, 1)}, {"by_threads", std::move(bandwidth)}};
  file["notes"] = report.notes;
  file["complete"] = !report.cancelled;
  file["cases"] = Json::array();
  for (const Row& row : rows) file["cases"].push_back(CaseJson(options, row));
  return file;
}

void PrintMarkdown(const config::OpbenchOptions& options, const engine::OpbenchReport& report,
                   const std::vector<Row>& rows, Console& console) {
  console.Write(MarkdownTable(rows).Markdown());
  const bool rounded = std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
    return row.test->hidden != options.hidden || row.test->inter != options.inter;
  });
  console.Print("\none layer of hidden {} x inter {}{}: {} experts of a call, {} of a row; median of the calls\n",
                options.hidden, options.inter, rounded ? ", rounded up to whole blocks of the format" : "",
                options.active, options.topk == 0 ? options.active : options.topk);
  for (const engine::OpbenchBandwidth& b : report.bandwidth) {
    if (b.gbps.empty()) continue;
    console.Print("read bandwidth with {} thread(s): {:.1f} GB/s, {:.1f} to {:.1f} in {} measurements\n", b.threads,
                  Quantile(b.gbps, 0.5), Quantile(b.gbps, 0), Quantile(b.gbps, 1), b.gbps.size());
  }
}

}  // namespace

Table CsvOfCases(const std::vector<Json>& cases, const std::vector<std::string>& kept_out) {
  const auto is_column = [&](const std::string& key) {
    return std::find(kept_out.begin(), kept_out.end(), key) == kept_out.end();
  };
  std::vector<std::vector<std::string>> lines;
  for (const Json& object : cases) {
    if (lines.empty()) {
      lines.emplace_back();
      for (const auto& [key, value] : object.items()) {
        if (is_column(key)) lines.back().push_back(key);
      }
    }
    lines.emplace_back();
    for (const auto& [key, value] : object.items()) {
      if (!is_column(key)) continue;
      lines.back().push_back(value.is_null()           ? ""
                             : value.is_string()       ? value.get<std::string>()
                             : value.is_number_float() ? fmt::format("{:.5g}", value.get<double>())
                                                       : value.dump());
    }
  }
  Table table(std::vector<Align>(lines.empty() ? 0 : lines.front().size(), Align::kLeft));
  for (std::vector<std::string>& line : lines) table.Add(std::move(line));
  return table;
}

Status Opbench(const config::OpbenchOptions& options, Console& console) {
  if (!options.out.empty()) BELLHOP_TRY(engine::CheckFolderOf(options.out));
  const engine::Interrupts interrupts;
  Progress progress(console, "opbench");
  const engine::OpbenchControl control{
      .progress = [&](int64_t done, int64_t total, const std::string& what) { progress.Update(done, total, what); },
      .cancel = &interrupts.flag(),
  };
  if (options.device == config::Device::kCuda) {
    BELLHOP_TRY_ASSIGN(const engine::GpuOpbenchReport report, engine::RunGpuOpbench(options, control));
    progress.Clear();
    return WriteGpuReport(options, report, console);
  }
  BELLHOP_TRY_ASSIGN(const engine::OpbenchReport report, engine::RunOpbench(options, control));
  progress.Clear();
  for (const std::string& note : report.notes) console.Say("note: " + OneLine(note));
  if (report.cancelled) console.SayAlways("interrupted: these are the cases that were complete");
  const std::vector<Row> rows = Rows(report);
  switch (options.format) {
    case config::BenchFormat::kJson: console.WriteJson(ResultFile(options, report, rows)); break;
    case config::BenchFormat::kCsv: {
      std::vector<Json> cases;
      for (const Row& row : rows) cases.push_back(CaseJson(options, row));
      console.Write(CsvOfCases(cases, {"scalar_share"}).Csv());
      break;
    }
    case config::BenchFormat::kMarkdown: PrintMarkdown(options, report, rows, console); break;
  }
  if (options.out.empty()) return Status();
  return engine::WriteWholeFile(options.out, PrettyJson(ResultFile(options, report, rows)) + "\n");
}

}  // namespace bellhop::cli
