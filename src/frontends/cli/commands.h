// One function per command. Each returns OK for exit code 0; main.cc prints a failure and chooses the code.
#pragma once

#include "base/status.h"
#include "config/options.h"
#include "frontends/cli/console.h"

namespace bellhop::cli {

Status Run(const config::RunOptions& options, Console& console);
Status Serve(const config::ServeOptions& options, Console& console);
Status Inspect(const config::InspectOptions& options, Console& console);
Status Tokenize(const config::TokenizeOptions& options, Console& console);
Status Logits(const config::LogitsOptions& options, Console& console);
Status Perplexity(const config::PerplexityOptions& options, Console& console);
Status Profile(const config::ProfileOptions& options, Console& console);
Status Bench(const config::BenchOptions& options, Console& console);
Status Opbench(const config::OpbenchOptions& options, Console& console);
Status Quantize(const config::QuantizeCommandOptions& options, Console& console);
Status Doctor(const config::DoctorCommandOptions& options, Console& console);

}  // namespace bellhop::cli
