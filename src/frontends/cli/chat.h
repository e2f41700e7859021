// `bellhop run` on a terminal, or with --conversation.
#pragma once

#include "config/options.h"
#include "frontends/cli/console.h"
#include "frontends/cli/model_loading.h"

namespace bellhop::cli {

// Reads messages line by line until the input ends, /exit, or Ctrl-C at the prompt. The model has a chat template.
Status Chat(const config::RunOptions& options, const LoadedModel& model, Console& console);

}  // namespace bellhop::cli
