// What the options of commands are made of; for the files that describe commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/parse_spec.h"

namespace bellhop::config {

inline constexpr int64_t kMaxThreads = 4096;

inline constexpr const char* kModel = "Model";
inline constexpr const char* kText = "Text";
inline constexpr const char* kSampling = "Sampling";
inline constexpr const char* kContext = "Context";
inline constexpr const char* kWhere = "Where it runs";
inline constexpr const char* kOutput = "Output";
inline constexpr const char* kServer = "Server";

using Aliases = std::vector<std::string>;

OptionSpec Value(std::string name, Aliases aliases, std::string value_name, std::string help, Setter set,
                 std::string default_text = "");
OptionSpec List(std::string name, Aliases aliases, std::string value_name, std::string help, Setter set,
                std::string default_text = "");
OptionSpec Flag(std::string name, Aliases aliases, std::string help, Setter set);
OptionSpec Rival(std::string word, OptionSpec spec);
void Append(CommandSpec* command, const char* group, std::vector<OptionSpec> options);

void AddOutput(CommandSpec* command, OutputOptions* output, const std::string& json_help);
// Of commands that write result files.
void AddBenchOutput(CommandSpec* command, BenchFormat* format, std::string* out, OutputOptions* output);
void FinishBenchOutput(BenchFormat* format, OutputOptions* output);

CommandSpec OpbenchCommand(OpbenchOptions* o);

}  // namespace bellhop::config
