// The bellhop program: arguments in, one command, an exit code out.
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <variant>

#include "config/parse.h"
#include "engine/build_info.h"
#include "engine/process.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/console.h"

namespace bellhop::cli {
namespace {

int ReportError(std::string_view message, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "bellhop: error: %s\n", OneLine(message).c_str());
  return code;
}

int Report(const Status& status) { return status.ok() ? 0 : ReportError(status.message(), ExitCode(status)); }

Status Dispatch(const config::CommandOptions& options, Console& console) {
  return std::visit(
      [&](const auto& o) -> Status {
        using T = std::decay_t<decltype(o)>;
        if constexpr (std::is_same_v<T, config::RunOptions>) return Run(o, console);
        if constexpr (std::is_same_v<T, config::ServeOptions>) return Serve(o, console);
        if constexpr (std::is_same_v<T, config::InspectOptions>) return Inspect(o, console);
        if constexpr (std::is_same_v<T, config::TokenizeOptions>) return Tokenize(o, console);
        if constexpr (std::is_same_v<T, config::LogitsOptions>) return Logits(o, console);
        if constexpr (std::is_same_v<T, config::PerplexityOptions>) return Perplexity(o, console);
        if constexpr (std::is_same_v<T, config::ProfileOptions>) return Profile(o, console);
        if constexpr (std::is_same_v<T, config::BenchOptions>) return Bench(o, console);
        if constexpr (std::is_same_v<T, config::OpbenchOptions>) return Opbench(o, console);
        if constexpr (std::is_same_v<T, config::QuantizeCommandOptions>) return Quantize(o, console);
        if constexpr (std::is_same_v<T, config::DoctorCommandOptions>) return Doctor(o, console);
        return Internal("a command without code");
      },
      options);
}

config::OutputOptions OutputOf(const config::CommandOptions& options) {
  return std::visit(
      [](const auto& o) {
        if constexpr (requires { o.output; }) return o.output;
        return config::OutputOptions();
      },
      options);
}

int Main(int argc, char** argv) {
  const Result<config::Command> command = config::ParseCommandLine(argc, argv);
  if (!command.ok()) return Report(command.status());
  const Result<std::unique_ptr<Console>> created = Console::Create(OutputOf(command->options));
  if (!created.ok()) return Report(created.status());
  Console& console = **created;
  for (const std::string& warning : command->warnings) console.log().Warn("{}", warning);
  for (const config::Setting& setting : command->settings) {
    console.log().Debug("setting {} = {} ({})", setting.name, setting.value, setting.source);
  }
  Status status;
  if (const auto* help = std::get_if<config::HelpRequest>(&command->options)) {
    console.Write(help->text);
  } else if (std::holds_alternative<config::VersionRequest>(command->options)) {
    const engine::BuildInfo& build = engine::GetBuildInfo();
    console.Print("bellhop {} (commit {}, {}{})\n", build.version, build.commit, build.build_type,
                  build.cuda ? ", CUDA" : "");
  } else {
    status = Dispatch(command->options, console);
  }
  const Status written = console.Finish();
  return Report(status.ok() ? written : status);
}

}  // namespace
}  // namespace bellhop::cli

int main(int argc, char** argv) {
  bellhop::engine::ExplainMappingFaults("bellhop: error: ", 1);
  try {
    return bellhop::cli::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    return bellhop::cli::ReportError("out of memory; close other programs, or lower --ctx-size or --batch-size", 1);
  } catch (const std::exception& error) {
    return bellhop::cli::ReportError(std::string("internal: ") + error.what(), 1);
  }
}
