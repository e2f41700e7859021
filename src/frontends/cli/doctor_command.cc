#include "engine/doctor.h"

#include "engine/calibrate.h"
#include "engine/calibration_file.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/table.h"

namespace bellhop::cli {
namespace {

std::string LevelName(engine::CheckLevel level) {
  switch (level) {
    case engine::CheckLevel::kOk: return "ok";
    case engine::CheckLevel::kNote: return "note";
    case engine::CheckLevel::kProblem: return "problem";
  }
  return "problem";
}

void PrintTable(const engine::DoctorReport& report, Console& console) {
  // One table for all groups, so that their columns line up; group heads go between its lines.
  Table table({Align::kLeft, Align::kLeft, Align::kLeft});
  for (const engine::DoctorLine& line : report.lines) {
    table.Add({LevelName(line.level), OneLine(line.name), OneLine(line.value)});
  }
  const std::string text = table.Text(2);
  size_t at = 0;
  std::string group;
  for (const engine::DoctorLine& line : report.lines) {
    if (line.group != group) console.Print("{}{}\n", group.empty() ? "" : "\n", line.group);
    group = line.group;
    const size_t end = text.find('\n', at);
    console.Write(text.substr(at, end + 1 - at));
    at = end + 1;
    if (!line.remedy.empty()) console.Print("           -> {}\n", OneLine(line.remedy));
  }
}

nlohmann::ordered_json CalibrationJson(const engine::Calibration& calibration, const std::string& path) {
  return {{"path", path},
          {"date", calibration.date},
          {"machine", engine::MachineJson(calibration.machine)},
          {"threads", calibration.threads},
          {"hbm_gbps", calibration.rates.hbm_gbps},
          {"dram_gbps", calibration.rates.dram_gbps},
          {"pcie_gbps", calibration.rates.pcie_gbps},
          {"both_dram_gbps", calibration.rates.both_dram_gbps},
          {"both_pcie_gbps", calibration.rates.both_pcie_gbps},
          {"sync_us", calibration.rates.sync_us},
          {"notes", calibration.notes}};
}

Status Calibrate(const config::DoctorCommandOptions& options, Console& console) {
  // Before the measurement: it takes long.
  BELLHOP_TRY(engine::PrepareCalibrationFolder(options.calibration));
  BELLHOP_TRY_ASSIGN(const engine::Calibration calibration, engine::Calibrate({.threads = options.threads}));
  const Status stored = engine::WriteCalibration(options.calibration, calibration);
  if (console.json()) {
    console.WriteJson(CalibrationJson(calibration, stored.ok() ? options.calibration.path : ""));
    return stored;
  }
  Table table({Align::kLeft, Align::kLeft});
  for (const engine::CalibrationLine& line : engine::DescribeRates(calibration)) table.Add({line.name, line.value});
  console.Print("{}", table.Text(2));
  for (const std::string& note : calibration.notes) console.Print("  note: {}\n", OneLine(note));
  if (stored.ok()) console.Print("stored in {}\n", OneLine(options.calibration.path));
  return stored;
}

}  // namespace

Status Doctor(const config::DoctorCommandOptions& options, Console& console) {
  if (options.calibrate) return Calibrate(options, console);
  BELLHOP_TRY_ASSIGN(const engine::DoctorReport report, engine::Diagnose({.measure = options.measure,
                                                                          .threads = options.threads,
                                                                          .model_path = options.model_path,
                                                                          .calibration = options.calibration}));
  if (!console.json()) {
    PrintTable(report, console);
    return Status();
  }
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const engine::DoctorLine& line : report.lines) {
    lines.push_back({{"group", line.group},
                     {"name", line.name},
                     {"value", line.value},
                     {"level", LevelName(line.level)},
                     {"remedy", line.remedy}});
  }
  nlohmann::ordered_json object = {{"problems", report.problems()}, {"checks", std::move(lines)}};
  if (options.measure) {
    object["read_gb_per_s"] = report.read_gb_per_s;
    object["pool_round_trip_ns"] = report.pool_round_trip_ns;
  }
  console.WriteJson(object);
  return Status();
}

}  // namespace bellhop::cli
