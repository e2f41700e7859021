#include "frontends/cli/model_loading.h"

#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/process.h"
#include "frontends/cli/progress.h"

namespace bellhop::cli {
namespace {

constexpr const char* kShippedModel = "tiny-moe-q4_0.gguf";

// Beside the program, where an installation puts it, and the source tree that this program was built from.
std::vector<std::filesystem::path> ShippedModelPaths() {
  std::vector<std::filesystem::path> paths;
  if (const std::string folder = engine::ExecutableDirectory(); !folder.empty()) {
    paths.push_back(std::filesystem::path(folder) / "models" / kShippedModel);
    paths.push_back((std::filesystem::path(folder) / "../share/bellhop/models" / kShippedModel).lexically_normal());
  }
  paths.push_back(std::filesystem::path(BELLHOP_SOURCE_MODELS) / kShippedModel);
  return paths;
}

// Shows a bar for each part of loading that takes longer than people wait for.
class LoadBars {
 public:
  explicit LoadBars(const Console& console) : console_(console) {}

  void Update(std::string_view what, uint64_t done, uint64_t total) {
    const Clock::time_point now = Clock::now();
    if (what != what_) {
      what_ = what;
      begin_ = now;
      bar_.reset();
    }
    if (!bar_ && now - begin_ < kQuickly) return;
    if (!bar_) bar_.emplace(console_, what_);
    bar_->Update(static_cast<int64_t>(done / kMegabyte), static_cast<int64_t>(total / kMegabyte),
                 fmt::format("{} of {}", FormatBytes(done), FormatBytes(total)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kQuickly{400};
  static constexpr uint64_t kMegabyte = 1'000'000;

  const Console& console_;
  std::string what_;
  Clock::time_point begin_;
  std::optional<Progress> bar_;
};

}  // namespace

Result<std::string> ResolveModelPath(const std::string& path, Console& console) {
  if (!path.empty()) return path;
  std::string looked;
  for (const std::filesystem::path& candidate : ShippedModelPaths()) {
    std::error_code error;
    if (std::filesystem::is_regular_file(candidate, error)) {
      console.Say(fmt::format("using the shipped model {}", candidate.string()));
      return candidate.string();
    }
    looked += (looked.empty() ? "" : ", ") + candidate.string();
  }
  return NotFound("no model given and the shipped one is not there (looked for {}); pass a GGUF file with -m", looked);
}

Result<LoadedModel> LoadModel(config::EngineConfig config, Console& console) {
  BELLHOP_TRY_ASSIGN(config.model_path, ResolveModelPath(config.model_path, console));
  const auto start = std::chrono::steady_clock::now();
  LoadedModel loaded;
  {
    LoadBars bars(console);
    const auto progress = [&bars](std::string_view what, uint64_t done, uint64_t total) {
      bars.Update(what, done, total);
      return true;  // Ctrl-C ends the program here as it always does: nothing is lost yet
    };
    BELLHOP_TRY_ASSIGN(loaded.engine, engine::TextEngine::Create(config, &console.log(), progress));
  }
  loaded.load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  for (const std::string& line : loaded.engine->PlanLines()) console.log().Info("{}", line);
  return loaded;
}

config::EngineConfig TokenizerConfig(const std::string& model_path) {
  config::EngineConfig config;
  config.model_path = model_path;
  config.runtime.threads = 1;
  config.runtime.pin_threads = false;
  config.runtime.offload = config::OffloadMode::kOff;
  config.runtime.prefault = config::PrefaultMode::kOff;
  config.context.context_tokens = 1;
  config.context.batch_rows = 1;
  return config;
}

std::string FileName(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace bellhop::cli
