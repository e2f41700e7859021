// What `run` and its chat share: a request from the options, text on standard output while it comes, and the report.
#pragma once

#include <string>
#include <vector>

#include "config/options.h"
#include "engine/process.h"
#include "engine/text_engine.h"
#include "frontends/cli/console.h"
#include "frontends/cli/model_loading.h"

namespace bellhop::cli {

// Holds what stays the same from answer to answer.
class Generator {
 public:
  Generator(const config::RunOptions& options, const LoadedModel& model, Console& console);

  // Tokens of a conversation, through the model's chat template.
  Result<std::vector<TokenId>> ChatTokens(const nlohmann::ordered_json& messages) const;

  // Generates, writing text as it comes unless the result goes out as JSON, and a line feed at the end.
  Result<engine::GenerateResult> Generate(std::vector<TokenId> prompt, const engine::Interrupts& interrupts);

  std::vector<std::string> StatsLines(const engine::GenerateResult& result) const;
  nlohmann::ordered_json ToJson(const std::vector<TokenId>& prompt, const engine::GenerateResult& result) const;
  // Why generation ended although neither the model nor the options wanted it; empty when that is not so.
  std::string EndNote(const engine::GenerateResult& result) const;

  engine::TextEngine& engine() const { return *model_.engine; }
  uint64_t seed() const { return seed_; }

 private:
  const config::RunOptions& options_;
  const LoadedModel& model_;
  Console& console_;
  uint64_t seed_;
};

}  // namespace bellhop::cli
