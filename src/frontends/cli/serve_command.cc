#include <utility>

#include "engine/process.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/model_loading.h"
#include "frontends/server/server.h"

namespace bellhop::cli {
namespace {

constexpr uint64_t kMaxKeyFileBytes = 1 << 20;

Status ReadKeys(const std::string& path, std::vector<std::string>* keys) {
  BELLHOP_TRY_ASSIGN(const std::string text, engine::ReadText(path, kMaxKeyFileBytes));
  const size_t before = keys->size();
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) keys->push_back(std::move(line));
    at = end + 1;
  }
  if (keys->size() == before) return InvalidArgument("--api-key-file {}: the file has no key", path);
  return Status();
}

}  // namespace

Status Serve(const config::ServeOptions& options, Console& console) {
  config::ServeOptions resolved = options;
  BELLHOP_TRY_ASSIGN(resolved.engine.model_path, ResolveModelPath(options.engine.model_path, console));
  if (!options.api_key_file.empty()) BELLHOP_TRY(ReadKeys(options.api_key_file, &resolved.api_keys));
  for (const std::string& key : resolved.api_keys) {
    if (key.empty()) return InvalidArgument("--api-key: an empty key would let everybody in; leave the option out");
  }
  const engine::Interrupts interrupts(engine::Interrupts::Kind::kService);
  server::ServeCallbacks callbacks;
  callbacks.on_listening = [&](const std::string& url) {
    if (console.json()) {
      console.WriteJson({{"url", url}});
    } else {
      console.Print("listening on {}\n", url);
    }
    console.Flush();
  };
  callbacks.on_ready = [&](const std::vector<std::string>& plan) {
    for (const std::string& line : plan) console.log().Info("{}", line);
    console.log().Info("ready: {} sequences at a time", resolved.engine.context.sequences);
  };
  return server::Serve(resolved, &console.log(), interrupts.flag(), callbacks);
}

}  // namespace bellhop::cli
