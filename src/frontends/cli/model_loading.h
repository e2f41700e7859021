// From the options to a loaded engine.
#pragma once

#include <memory>
#include <string>

#include "engine/text_engine.h"
#include "frontends/cli/console.h"

namespace bellhop::cli {

// `path`, or the shipped model when it is empty; says so when it is the shipped one. kNotFound lists where it looked.
Result<std::string> ResolveModelPath(const std::string& path, Console& console);

struct LoadedModel {
  std::unique_ptr<engine::TextEngine> engine;
  double load_ms = 0;
};

// Loads and says the plan.
Result<LoadedModel> LoadModel(config::EngineConfig config, Console& console);

// A configuration that is enough for the tokenizer: one thread, next to no context.
config::EngineConfig TokenizerConfig(const std::string& model_path);

// "tiny-moe-q4_0.gguf" of a path, for results that should not name folders.
std::string FileName(const std::string& path);

}  // namespace bellhop::cli
