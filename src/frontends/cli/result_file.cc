#include "frontends/cli/result_file.h"

#include "engine/build_info.h"
#include "engine/process.h"

namespace bellhop::cli {

nlohmann::ordered_json ResultFileHead(std::string_view name, const std::vector<std::string>& arguments) {
  const engine::MachineSummary machine = engine::DescribeMachine();
  std::string command = "bellhop";
  for (const std::string& argument : arguments) command += " " + argument;
  return {{"name", name},
          {"commit", engine::GetBuildInfo().commit},
          {"date", engine::UtcTimestamp()},
          {"command", command},
          {"machine",
           {{"slug", machine.slug},
            {"gpu", machine.gpu},
            {"driver", machine.driver},
            {"cpu", machine.cpu},
            {"cores", machine.cores},
            {"isa", machine.isa}}}};
}

}  // namespace bellhop::cli
