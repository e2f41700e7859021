// The one parser of arguments, environment and configuration file. Pure: it prints nothing and does not exit.
//
// Precedence: argument, then environment variable, then --config FILE.json, then default. The value of an option comes
// from the highest of these that gives it; values of a list option add up within one of them. A setting that is
// misspelt, given twice, out of range or in conflict with another is an error.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/options.h"

namespace bellhop::config {

// Name and value of every variable that may matter. Variables that are empty count as not set.
struct Environment {
  std::map<std::string, std::string> variables;

  // Those of this process that begin with BELLHOP_, XDG_CACHE_HOME and HOME.
  static Environment OfProcess();
};

// Where the calibration is stored unless an option says otherwise: $XDG_CACHE_HOME/bellhop/calibration.json, or that
// folder under $HOME/.cache. Empty when neither variable is an absolute path.
std::string DefaultCalibrationPath(const Environment& environment);

struct Setting {
  std::string name;    // long name of the option
  std::string value;   // as written; values of a list are joined by ", "
  std::string source;  // "argument", "BELLHOP_THREADS", "settings.json"
};

struct Command {
  std::string name;  // "run"; empty for the program's own help and version
  CommandOptions options;
  std::vector<Setting> settings;      // everything that is not left at its default
  std::vector<std::string> warnings;  // unknown BELLHOP_ variables
};

// `arguments` without the program's name. kInvalidArgument: one line that names the option (or variable, or file and
// key), the value, and what is accepted.
Result<Command> ParseCommandLine(const std::vector<std::string>& arguments, const Environment& environment);
Result<Command> ParseCommandLine(int argc, const char* const* argv);  // with this process's environment

}  // namespace bellhop::config
