#include "model/arch/registry.h"

#include "model/arch/builder.h"

namespace bellhop::model {
namespace {

struct Entry {
  std::string_view architecture;
  Result<ModelSpec> (*build)(const manifest::Manifest&);
};

constexpr Entry kRegistry[] = {
    {"qwen3moe", BuildQwen3},   {"qwen3", BuildQwen3}, {"llama", BuildLlama},    {"granite", BuildLlama},
    {"granitemoe", BuildLlama}, {"olmoe", BuildOlmoe}, {"gpt-oss", BuildGptOss},
};

}  // namespace

std::vector<std::string_view> SupportedArchitectures() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kRegistry) names.push_back(entry.architecture);
  return names;
}

Result<ModelSpec> BuildSpec(const manifest::Manifest& manifest) {
  for (const Entry& entry : kRegistry) {
    if (entry.architecture == manifest.architecture) return entry.build(manifest);
  }
  std::string known;
  for (const Entry& entry : kRegistry) known += (known.empty() ? "" : ", ") + std::string(entry.architecture);
  return Unsupported("architecture '{}' is not supported; supported are {}", manifest.architecture, known);
}

}  // namespace bellhop::model
