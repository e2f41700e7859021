// What every result file of a benchmark begins with (bench/README.md): its name, the build, the time, the command and
// the machine. The caller adds `ceilings` and `cases`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace bellhop::cli {

// `arguments` as the program got them, without its name.
nlohmann::ordered_json ResultFileHead(std::string_view name, const std::vector<std::string>& arguments);

}  // namespace bellhop::cli
