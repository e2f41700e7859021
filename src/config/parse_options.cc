#include "config/parse_options.h"

#include <utility>

#include "config/parse_values.h"

namespace bellhop::config {

OptionSpec Value(std::string name, Aliases aliases, std::string value_name, std::string help, Setter set,
                 std::string default_text) {
  return {.name = std::move(name),
          .aliases = std::move(aliases),
          .value_name = std::move(value_name),
          .help = std::move(help),
          .default_text = std::move(default_text),
          .kind = OptionKind::kValue,
          .set = std::move(set),
          .rivals = {}};
}

OptionSpec List(std::string name, Aliases aliases, std::string value_name, std::string help, Setter set,
                std::string default_text) {
  OptionSpec spec = Value(std::move(name), std::move(aliases), std::move(value_name), std::move(help), std::move(set),
                          std::move(default_text));
  spec.kind = OptionKind::kList;
  return spec;
}

OptionSpec Flag(std::string name, Aliases aliases, std::string help, Setter set) {
  OptionSpec spec = Value(std::move(name), std::move(aliases), "", std::move(help), std::move(set));
  spec.kind = OptionKind::kFlag;
  return spec;
}

OptionSpec Rival(std::string word, OptionSpec spec) {
  spec.rivals = std::move(word);
  return spec;
}

void Append(CommandSpec* command, const char* group, std::vector<OptionSpec> options) {
  for (OptionSpec& option : options) {
    option.group = group;
    command->options.push_back(std::move(option));
  }
}

void AddOutput(CommandSpec* command, OutputOptions* output, const std::string& json_help) {
  Append(command, kOutput,
         {
             Flag("json", {}, json_help, FlagSetter(&output->json)),
             Rival("loudness", Flag("quiet", {"-q"}, "Only results and errors", FlagSetter(&output->quiet))),
             Rival("loudness",
                   Flag("verbose", {"-v"}, "Also debug lines and the settings in use", FlagSetter(&output->verbose))),
             Value("log-file", {}, "FILE", "Append log lines to FILE instead of standard error",
                   TextSetter(&output->log_file)),
         });
}

void AddBenchOutput(CommandSpec* command, BenchFormat* format, std::string* out, OutputOptions* output) {
  Append(command, kOutput,
         {
             Rival("format", Value("output", {"-o"}, "FORMAT", "md, csv or json",
                                   ChoiceSetter<BenchFormat>(format, {{"md", BenchFormat::kMarkdown},
                                                                      {"csv", BenchFormat::kCsv},
                                                                      {"json", BenchFormat::kJson}}),
                                   "md")),
             Value("out", {}, "FILE", "Also write the result file, JSON whatever --output says", TextSetter(out)),
         });
  AddOutput(command, output, "As --output json");
  for (OptionSpec& option : command->options) {
    if (option.name == "json") option.rivals = "format";
  }
}

void FinishBenchOutput(BenchFormat* format, OutputOptions* output) {
  if (output->json) *format = BenchFormat::kJson;
  if (*format == BenchFormat::kJson) output->json = true;
}

}  // namespace bellhop::config
