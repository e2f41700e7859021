// Tables and result files of `bellhop opbench`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/options.h"
#include "engine/opbench.h"
#include "engine/opbench_gpu.h"
#include "frontends/cli/console.h"
#include "frontends/cli/table.h"

namespace bellhop::cli {

// The keys of the JSON cases, but for those of kept_out, as columns.
Table CsvOfCases(const std::vector<nlohmann::ordered_json>& cases, const std::vector<std::string>& kept_out = {});

// A case with the figures that follow from its times and from the read bandwidth of the device's memory.
nlohmann::ordered_json GpuCaseJson(const engine::GpuOpbenchCase& test, double hbm_gbps);
nlohmann::ordered_json GpuResultFile(const config::OpbenchOptions& options, const engine::GpuOpbenchReport& report);
std::string GpuMarkdown(const engine::GpuOpbenchReport& report);
Status WriteGpuReport(const config::OpbenchOptions& options, const engine::GpuOpbenchReport& report, Console& console);

}  // namespace bellhop::cli
