// The forward pass of qwen3moe in plain double precision, written to be read: what the engine's --act f32 must be near.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"

namespace bellhop::test {

struct OracleResult {
  int64_t vocab = 0;
  std::vector<double> logits;                // [positions][vocab]
  std::vector<std::vector<int32_t>> chosen;  // [layer][position * used]: experts, highest score first
  double smallest_gap = 1e300;               // router logit of the last chosen expert minus the best one not chosen
};

// Reads the model at `path`; throws when it is not a complete qwen3moe file.
OracleResult RunOracle(const std::string& path, const std::vector<TokenId>& ids);

// || engine - oracle || / || oracle || over all positions.
double OracleDistance(const std::vector<float>& engine, const OracleResult& oracle);

}  // namespace bellhop::test
