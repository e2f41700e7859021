// One option of a command: its spellings, its words in the help, and what a value does. The same entry serves
// arguments, environment and configuration file.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/options.h"

namespace bellhop::config {

// Takes one value. The error's message says what is accepted; the caller puts the option and the value in front.
using Setter = std::function<Status(std::string_view)>;

enum class OptionKind : uint8_t { kFlag, kValue, kList };

struct OptionSpec {
  std::string name;                  // long name without dashes; also the environment twin and the key in the file
  std::vector<std::string> aliases;  // other spellings, with their dashes
  std::string value_name;            // "N"; empty for flags
  std::string help;
  std::string default_text;  // empty: the help says it, or there is none
  OptionKind kind = OptionKind::kValue;
  Setter set;
  bool positional = false;  // may be given without a name
  bool named = true;        // false: without a name only, so it has no environment twin and no key
  bool required = false;
  std::string rivals;  // options with the same word here exclude each other; empty: none
  std::string group = {};

  bool takes_value() const { return kind != OptionKind::kFlag; }
  std::string EnvironmentName() const;  // "BELLHOP_CTX_SIZE"
};

struct CommandSpec {
  std::string name;
  std::string arguments;    // "[MODEL]", for the usage line
  std::string summary;      // one line
  std::string description;  // paragraphs for the command's own help
  std::vector<OptionSpec> options;
  std::function<Status()> finish;        // checks between options
  std::function<CommandOptions()> take;  // the filled struct

  const OptionSpec* FindLong(std::string_view name) const;      // canonical name or alias, without dashes
  const OptionSpec* FindSpelling(std::string_view text) const;  // with dashes: "--ctx", "-c", "-ctk"
};

// The structs that specs point into.
struct OptionStorage {
  RunOptions run;
  InspectOptions inspect;
  TokenizeOptions tokenize;
  LogitsOptions logits;
  PerplexityOptions perplexity;
  ProfileOptions profile;
  BenchOptions bench;
  OpbenchOptions opbench;
  ServeOptions serve;
  QuantizeCommandOptions quantize;
  DoctorCommandOptions doctor;
  // llama.cpp's separate cache types of the command that is parsed; merged into its ContextConfig.
  KvCacheType cache_type_k = KvCacheType::kAuto, cache_type_v = KvCacheType::kAuto;

  // Of every command that has one.
  std::vector<CalibrationConfig*> Calibrations();
};

// Every command. `storage` must outlive the result.
std::vector<CommandSpec> BuildCommands(OptionStorage* storage);

// Help of the program and of one command.
std::string ProgramHelp(const std::vector<CommandSpec>& commands);
std::string CommandHelp(const CommandSpec& command);

}  // namespace bellhop::config
