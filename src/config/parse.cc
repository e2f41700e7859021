#include "config/parse.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "config/parse_spec.h"
#include "config/parse_values.h"

// The process's environment, as POSIX declares it.
extern char** environ;  // NOLINT

namespace bellhop::config {
namespace {

constexpr std::string_view kEnvironmentPrefix = "BELLHOP_";
constexpr std::string_view kCacheHome = "XDG_CACHE_HOME";
constexpr std::string_view kHome = "HOME";
constexpr size_t kMaxConfigBytes = 1 << 20;

enum class Layer : uint8_t { kFile, kEnvironment, kArgument };

// What one layer says about one option.
struct Given {
  Layer layer = Layer::kArgument;
  std::string where;  // in front of error messages: "--threads", "BELLHOP_THREADS", "settings.json: threads"
  std::vector<std::string> values;
};
using GivenMap = std::map<std::string, Given>;  // by option name

// "; did you mean --threads?" or nothing.
std::string Suggestion(std::string_view word, const std::vector<std::string>& candidates,
                       std::string_view prefix = "") {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, nearest);
}

std::vector<std::string> LongNames(const CommandSpec& command) {
  std::vector<std::string> names;
  for (const OptionSpec& option : command.options) {
    if (!option.named) continue;
    names.push_back(option.name);
    for (const std::string& alias : option.aliases) {
      if (alias.starts_with("--")) names.push_back(alias.substr(2));
    }
  }
  return names;
}

Status UnknownOption(const CommandSpec& command, std::string_view argument) {
  const std::string name(argument.substr(0, argument.find('=')));
  const std::string_view bare = std::string_view(name).substr(std::min(name.find_first_not_of('-'), name.size()));
  std::string hint = Suggestion(bare, LongNames(command), "--");
  if (hint.empty()) hint = fmt::format("; `bellhop help {}` lists the options", command.name);
  return InvalidArgument("unknown option {} for {}{}", QuoteValue(name), command.name, hint);
}

// Rewrites arguments so that CLI11 takes them the way they are meant: every option under its long name, values as
// separate arguments (CLI11 takes "--prompt=" as an option without a value), spellings such as -ctk, which CLI11 reads
// as -c tk. A value is never taken for an option, whatever it looks like.
Result<std::vector<std::string>> NormalizeArguments(const CommandSpec& command,
                                                    const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  size_t i = 0;
  const auto take_value = [&](const OptionSpec& option) -> Status {
    if (i + 1 >= arguments.size()) return InvalidArgument("--{} needs a value: {}", option.name, option.value_name);
    out.push_back(arguments[++i]);
    return Status();
  };
  for (; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      out.insert(out.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    const bool is_long = argument.size() > 2 && argument.starts_with("--");
    const size_t equals = is_long ? argument.find('=') : std::string::npos;
    const OptionSpec* option = command.FindSpelling(std::string_view(argument).substr(0, equals));
    if (option != nullptr && equals != std::string::npos && option->takes_value()) {
      out.push_back("--" + option->name);
      out.push_back(argument.substr(equals + 1));
    } else if (option != nullptr) {
      out.push_back("--" + option->name + (equals == std::string::npos ? "" : argument.substr(equals)));
      if (option->takes_value()) BELLHOP_TRY(take_value(*option));
    } else {
      out.push_back(argument);
      if (is_long || argument.size() < 2 || argument[0] != '-') continue;
      // Short options run together: the last one may need the next argument.
      for (size_t c = 1; c < argument.size(); ++c) {
        const OptionSpec* part = command.FindSpelling(std::string("-") + argument[c]);
        if (part == nullptr) break;
        if (!part->takes_value()) continue;
        if (c + 1 == argument.size()) BELLHOP_TRY(take_value(*part));
        break;
      }
    }
  }
  return out;
}

Result<GivenMap> ReadArguments(const CommandSpec& command, const std::vector<std::string>& arguments) {
  BELLHOP_TRY_ASSIGN(std::vector<std::string> normalized, NormalizeArguments(command, arguments));
  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  std::vector<std::pair<const OptionSpec*, CLI::Option*>> registered;
  GivenMap given;
  try {
    for (const OptionSpec& option : command.options) {
      std::string names = option.named ? "--" + option.name : "";
      for (const std::string& alias : option.aliases) {
        if (alias.size() == 2) names += "," + alias;
      }
      if (option.positional) names += (names.empty() ? "" : ",") + option.name + "_argument";
      CLI::Option* added = option.takes_value()
                               ? app.add_option(names, CLI::callback_t([](const auto&) { return true; }))
                               : app.add_flag(names);
      if (option.takes_value()) added->expected(1)->take_all()->allow_extra_args(false);
      registered.emplace_back(&option, added);
    }
    std::reverse(normalized.begin(), normalized.end());  // as CLI11 wants them
    app.parse(std::move(normalized));
  } catch (const CLI::Error& error) {
    return InvalidArgument("{}; `bellhop help {}` lists the options", error.what(), command.name);
  }
  for (const auto& [option, added] : registered) {
    if (added->results().empty()) continue;
    const std::string shown = option->named ? "--" + option->name : option->value_name;
    given[option->name] = {Layer::kArgument, shown, added->results()};
  }
  if (given.contains("help")) return given;
  for (const std::string& extra : app.remaining()) {
    if (extra == "--") continue;
    if (extra.size() > 1 && extra[0] == '-') return UnknownOption(command, extra);
    if (given.contains("model")) {
      return InvalidArgument("unexpected argument {}: MODEL is already {}", QuoteValue(extra),
                             QuoteValue(given["model"].values.front()));
    }
    return InvalidArgument("unexpected argument {} for {}; usage: bellhop {} {} [options]", QuoteValue(extra),
                           command.name, command.name, command.arguments);
  }
  for (const auto& [option, added] : registered) {
    if (option->kind != OptionKind::kList && added->results().size() > 1) {
      return InvalidArgument("--{} is given {} times ({}, {}{}); give it once", option->name, added->results().size(),
                             QuoteValue(added->results()[0]), QuoteValue(added->results()[1]),
                             added->results().size() > 2 ? ", ..." : "");
    }
  }
  return given;
}

void AddEnvironment(const CommandSpec& command, const Environment& environment, GivenMap* given) {
  for (const OptionSpec& option : command.options) {
    if (!option.named || option.name == "help") continue;
    const std::string variable = option.EnvironmentName();
    const auto found = environment.variables.find(variable);
    if (found == environment.variables.end() || found->second.empty()) continue;
    given->try_emplace(option.name, Given{Layer::kEnvironment, variable, {found->second}});
  }
}

std::vector<std::string> UnknownVariables(const std::vector<CommandSpec>& commands, const Environment& environment) {
  std::vector<std::string> known;
  for (const CommandSpec& command : commands) {
    for (const OptionSpec& option : command.options) {
      if (option.named && option.name != "help") known.push_back(option.EnvironmentName());
    }
  }
  std::vector<std::string> warnings;
  for (const auto& [name, value] : environment.variables) {
    if (!name.starts_with(kEnvironmentPrefix) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    warnings.push_back(fmt::format("the environment variable {} is no setting{}", name, Suggestion(name, known)));
  }
  return warnings;
}

Result<nlohmann::ordered_json> ReadConfigFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("--config {}: cannot open the file", QuoteValue(path));
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return IoError("--config {}: cannot read the file", QuoteValue(path));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxConfigBytes) {
    return InvalidArgument("--config {}: larger than {} bytes; it is no file of settings", QuoteValue(path),
                           kMaxConfigBytes);
  }
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, nlohmann::ordered_json::parse_event_t event, nlohmann::ordered_json& parsed) {
    if (event == nlohmann::ordered_json::parse_event_t::key && depth == 1) {
      const std::string key = parsed.get<std::string>();
      if (!seen.insert(key).second) twice = key;
    }
    return true;
  };
  nlohmann::ordered_json settings;
  try {
    settings = nlohmann::ordered_json::parse(text, watch);
  } catch (const nlohmann::ordered_json::parse_error& error) {
    return InvalidArgument("--config {}: not JSON, at byte {}; write {{\"ctx-size\": 2048}}", QuoteValue(path),
                           error.byte);
  }
  if (!settings.is_object()) {
    return InvalidArgument("--config {}: expects an object such as {{\"ctx-size\": 2048}}", QuoteValue(path));
  }
  if (!twice.empty())
    return InvalidArgument("--config {}: the key {} occurs twice", QuoteValue(path), QuoteValue(twice));
  return settings;
}

// A JSON value as the texts that setters take.
Result<std::vector<std::string>> SettingValues(const OptionSpec& option, const nlohmann::ordered_json& value) {
  const auto scalar = [&](const nlohmann::ordered_json& v) -> std::optional<std::string> {
    if (option.kind == OptionKind::kFlag) return v.is_boolean() ? std::optional(v.dump()) : std::nullopt;
    if (v.is_string()) return v.get<std::string>();
    if (v.is_number()) return v.dump();
    return std::nullopt;
  };
  std::vector<std::string> values;
  if (option.kind == OptionKind::kList && value.is_array()) {
    for (const nlohmann::ordered_json& item : value) {
      std::optional<std::string> text = scalar(item);
      if (!text) return InvalidArgument("expects strings or numbers in the list");
      values.push_back(std::move(*text));
    }
    return values;
  }
  std::optional<std::string> text = scalar(value);
  if (!text) {
    return InvalidArgument("expects {}", option.kind == OptionKind::kFlag   ? "true or false"
                                         : option.kind == OptionKind::kList ? "a string, a number or a list of them"
                                                                            : "a string or a number");
  }
  values.push_back(std::move(*text));
  return values;
}

Status AddConfigFile(const std::string& path, const CommandSpec& command, const std::vector<CommandSpec>& commands,
                     GivenMap* given) {
  BELLHOP_TRY_ASSIGN(const nlohmann::ordered_json settings, ReadConfigFile(path));
  std::set<std::string> named;
  for (const auto& [key, value] : settings.items()) {
    const OptionSpec* option = command.FindLong(key);
    if (key == "config" || key == "help") option = nullptr;
    if (option == nullptr) {
      // One file may serve several commands.
      const bool elsewhere = key != "config" && key != "help" &&
                             std::any_of(commands.begin(), commands.end(),
                                         [&k = key](const CommandSpec& other) { return other.FindLong(k) != nullptr; });
      if (elsewhere) continue;
      return InvalidArgument("{}: unknown key {}{}", path, QuoteValue(key), Suggestion(key, LongNames(command)));
    }
    const std::string where = fmt::format("{}: {}", path, key);
    if (!named.insert(option->name).second) {
      return InvalidArgument("{}: means --{}, which is set under another key too; keep one", where, option->name);
    }
    auto values = SettingValues(*option, value);
    if (!values.ok()) {
      return InvalidArgument("{} {}: {}", where,
                             QuoteValue(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)),
                             values.status().message());
    }
    given->try_emplace(option->name, Given{Layer::kFile, where, std::move(values).value()});
  }
  return Status();
}

// Of options that exclude each other the one from the highest layer stays; two in one layer are an error.
Status ResolveRivals(const CommandSpec& command, GivenMap* given) {
  std::map<std::string, const OptionSpec*> winners;
  for (const OptionSpec& option : command.options) {
    const auto found = given->find(option.name);
    if (option.rivals.empty() || found == given->end()) continue;
    // "json": false in a file is no wish for another format.
    if (option.kind == OptionKind::kFlag && found->second.values.front() == "false") continue;
    const auto [winner, first] = winners.try_emplace(option.rivals, &option);
    if (first) continue;
    const Given& other = given->at(winner->second->name);
    if (other.layer == found->second.layer) {
      return InvalidArgument("{} and {} exclude each other; give one of them", other.where, found->second.where);
    }
    if (other.layer < found->second.layer) {
      given->erase(winner->second->name);
      winner->second = &option;
    } else {
      given->erase(found);
    }
  }
  return Status();
}

Status Apply(const CommandSpec& command, const GivenMap& given, std::vector<Setting>* settings) {
  for (const OptionSpec& option : command.options) {
    const auto found = given.find(option.name);
    if (found == given.end()) {
      if (option.required) {
        return InvalidArgument(
            "{} needs {}; usage: bellhop {} {} [options]", command.name,
            option.named ? fmt::format("--{} {}", option.name, option.value_name) : option.value_name, command.name,
            command.arguments);
      }
      continue;
    }
    const Given& values = found->second;
    std::string joined;
    for (const std::string& value : values.values) {
      const Status status = option.set(value);
      if (!status.ok()) return InvalidArgument("{} {}: {}", values.where, QuoteValue(value), status.message());
      joined += (joined.empty() ? "" : ", ") + value;
    }
    const std::string source = values.layer == Layer::kArgument ? "argument" : values.where;
    settings->push_back({option.name, std::move(joined), source});
  }
  return command.finish();
}

Result<Command> ParseProgram(const std::vector<CommandSpec>& commands, const std::vector<std::string>& arguments) {
  std::vector<std::string> names{"help"};
  for (const CommandSpec& command : commands) names.push_back(command.name);
  if (arguments.empty()) {
    return InvalidArgument("no command given; `bellhop --help` lists them, `bellhop run` starts a chat");
  }
  const std::string& first = arguments[0];
  if (first == "--version") return Command{"", VersionRequest{}, {}, {}};
  if (first == "--help" || first == "-h" || (first == "help" && arguments.size() == 1)) {
    return Command{"", HelpRequest{ProgramHelp(commands)}, {}, {}};
  }
  if (first == "help") {
    for (const CommandSpec& command : commands) {
      if (command.name == arguments[1]) return Command{"", HelpRequest{CommandHelp(command)}, {}, {}};
    }
    return InvalidArgument("no command {}{}", QuoteValue(arguments[1]), Suggestion(arguments[1], names));
  }
  if (first.starts_with("-")) {
    return InvalidArgument("the command comes first: bellhop COMMAND {} ...; `bellhop --help` lists the commands",
                           first);
  }
  std::string hint = Suggestion(first, names);
  if (first.ends_with(".gguf")) hint = fmt::format("; to run a model: bellhop run {}", first);
  if (hint.empty()) hint = "; `bellhop --help` lists the commands";
  return InvalidArgument("no command {}{}", QuoteValue(first), hint);
}

}  // namespace

std::string OptionSpec::EnvironmentName() const {
  std::string variable(kEnvironmentPrefix);
  for (const char c : name) variable += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return variable;
}

const OptionSpec* CommandSpec::FindLong(std::string_view long_name) const {
  return FindSpelling("--" + std::string(long_name));
}

const OptionSpec* CommandSpec::FindSpelling(std::string_view text) const {
  for (const OptionSpec& option : options) {
    if (!option.named) continue;
    if (text.starts_with("--") && text.substr(2) == option.name) return &option;
    if (std::find(option.aliases.begin(), option.aliases.end(), text) != option.aliases.end()) return &option;
  }
  return nullptr;
}

Environment Environment::OfProcess() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (!name.starts_with(kEnvironmentPrefix) && name != kCacheHome && name != kHome) continue;
    environment.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::string DefaultCalibrationPath(const Environment& environment) {
  constexpr std::string_view kFile = "/bellhop/calibration.json";
  // Relative paths are to be ignored, says the XDG specification.
  const auto folder = [&](std::string_view name) {
    const auto found = environment.variables.find(std::string(name));
    return found != environment.variables.end() && found->second.starts_with('/') ? found->second : std::string();
  };
  if (const std::string cache = folder(kCacheHome); !cache.empty()) return fmt::format("{}{}", cache, kFile);
  if (const std::string home = folder(kHome); !home.empty()) return fmt::format("{}/.cache{}", home, kFile);
  return "";
}

Result<Command> ParseCommandLine(const std::vector<std::string>& arguments, const Environment& environment) {
  OptionStorage storage;
  for (CalibrationConfig* calibration : storage.Calibrations()) calibration->path = DefaultCalibrationPath(environment);
  const std::vector<CommandSpec> commands = BuildCommands(&storage);
  const auto command = std::find_if(commands.begin(), commands.end(), [&](const CommandSpec& candidate) {
    return !arguments.empty() && candidate.name == arguments[0];
  });
  if (command == commands.end()) return ParseProgram(commands, arguments);

  storage.bench.arguments = storage.opbench.arguments = arguments;
  BELLHOP_TRY_ASSIGN(GivenMap given, ReadArguments(*command, {arguments.begin() + 1, arguments.end()}));
  if (given.contains("help")) return Command{command->name, HelpRequest{CommandHelp(*command)}, {}, {}};
  AddEnvironment(*command, environment, &given);
  if (const auto config = given.find("config"); config != given.end()) {
    BELLHOP_TRY(AddConfigFile(config->second.values.front(), *command, commands, &given));
  }
  BELLHOP_TRY(ResolveRivals(*command, &given));
  Command parsed;
  parsed.name = command->name;
  BELLHOP_TRY(Apply(*command, given, &parsed.settings));
  parsed.options = command->take();
  parsed.warnings = UnknownVariables(commands, environment);
  return parsed;
}

Result<Command> ParseCommandLine(int argc, const char* const* argv) {
  return ParseCommandLine({argv + std::min(argc, 1), argv + argc}, Environment::OfProcess());
}

}  // namespace bellhop::config
