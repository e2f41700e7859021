// Engines over the repository's models, and golden JSON files, for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/text_engine.h"

namespace bellhop::test {

std::string RepoPath(const std::string& relative);
std::string ReadText(const std::string& relative);
nlohmann::json ReadJson(const std::string& relative);
inline std::string ShippedModel() { return RepoPath("models/tiny-moe-q4_0.gguf"); }

// Throws, and so fails the running test, when the model does not load. Two threads unless `adjust` says otherwise.
std::unique_ptr<engine::TextEngine> OpenEngine(const std::string& path,
                                               const std::function<void(config::EngineConfig&)>& adjust = {});

// ||a - b|| / ||b||
double RelativeL2(const float* a, const float* b, size_t n);
double MaxAbsolute(const float* a, const float* b, size_t n);

}  // namespace bellhop::test
