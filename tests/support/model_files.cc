#include "support/model_files.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace bellhop::test {

// BH_TEST_ROOT: where the files lie when tests run on another machine than the one that built them.
std::string RepoPath(const std::string& relative) {
  const char* const root = std::getenv("BH_TEST_ROOT");
  return std::string(root != nullptr ? root : BELLHOP_SOURCE_DIR) + "/" + relative;
}

std::string ReadText(const std::string& relative) {
  std::ifstream file(RepoPath(relative), std::ios::binary);
  if (!file) throw std::runtime_error(relative + ": cannot be opened");
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

nlohmann::json ReadJson(const std::string& relative) {
  std::ifstream file(RepoPath(relative));
  if (!file) throw std::runtime_error(relative + ": cannot be opened");
  return nlohmann::json::parse(file);
}

std::unique_ptr<engine::TextEngine> OpenEngine(const std::string& path,
                                               const std::function<void(config::EngineConfig&)>& adjust) {
  config::EngineConfig config;
  config.model_path = path;
  config.runtime.device = config::Device::kCpu;
  config.runtime.threads = 2;
  config.runtime.pin_threads = false;
  if (adjust) adjust(config);
  auto engine = engine::TextEngine::Create(config, &NullLogSink());
  if (!engine.ok()) throw std::runtime_error(engine.status().ToString());
  return std::move(engine).value();
}

double RelativeL2(const float* a, const float* b, size_t n) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < n; ++i) {
    error += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / norm);
}

double MaxAbsolute(const float* a, const float* b, size_t n) {
  double max = 0;
  for (size_t i = 0; i < n; ++i) max = std::max(max, std::abs(static_cast<double>(a[i]) - b[i]));
  return max;
}

}  // namespace bellhop::test
