#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/process.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/model_loading.h"
#include "frontends/cli/progress.h"
#include "frontends/cli/table.h"
#include "frontends/cli/text_source.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;
using Counts = std::vector<std::vector<uint64_t>>;  // [layer][expert]; a dense layer is empty

struct SourceCounts {
  std::string name;
  int64_t tokens = 0;
  Counts counts;
};

Counts Difference(const Counts& after, const Counts& before) {
  Counts difference = after;
  for (size_t l = 0; l < before.size(); ++l) {
    for (size_t e = 0; e < before[l].size(); ++e) difference[l][e] -= before[l][e];
  }
  return difference;
}

// How unevenly one layer's experts are used.
struct Skew {
  double top = 0, top_quarter = 0, rarest = 0;
  double effective = 0;  // exp of the entropy: as many equally popular experts would be as mixed
  int64_t unused = 0;
};

Skew MeasureSkew(std::vector<uint64_t> counts) {
  std::sort(counts.begin(), counts.end(), std::greater<>());
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  Skew skew;
  if (total == 0) return skew;
  double entropy = 0;
  const size_t quarter = (counts.size() + 3) / 4;
  for (size_t e = 0; e < counts.size(); ++e) {
    const double share = static_cast<double>(counts[e]) / total;
    if (e < quarter) skew.top_quarter += share;
    if (share > 0) entropy -= share * std::log(share);
    if (counts[e] == 0) ++skew.unused;
  }
  skew.top = static_cast<double>(counts.front()) / total;
  skew.rarest = static_cast<double>(counts.back()) / total;
  skew.effective = std::exp(entropy);
  return skew;
}

Status CountWindows(engine::TextEngine& engine, const CorpusSource& source, int32_t window,
                    const std::function<void(int64_t)>& progress) {
  const auto step = static_cast<size_t>(window);
  for (size_t at = 0; at < source.ids.size(); at += step) {
    const size_t count = std::min(step, source.ids.size() - at);
    BELLHOP_TRY(engine.CountRoutes({source.ids.data() + at, count}, nullptr));
    progress(static_cast<int64_t>(count));
  }
  return Status();
}

Result<std::vector<SourceCounts>> CountSources(engine::TextEngine& engine, const std::vector<CorpusSource>& sources,
                                               int32_t window, Console& console) {
  int64_t total = 0, done = 0;
  for (const CorpusSource& source : sources) total += static_cast<int64_t>(source.ids.size());
  Progress progress(console, "profile");
  std::vector<SourceCounts> counted;
  engine.ResetStats();
  Counts before;
  for (const CorpusSource& source : sources) {
    if (source.ids.empty()) {
      console.Say(fmt::format("note: source {} has {} tokens, less than a window of {}: left out", source.name,
                              source.tokens, window));
      continue;
    }
    BELLHOP_TRY(CountWindows(engine, source, window, [&](int64_t tokens) {
      done += tokens;
      progress.Update(done, total, source.name);
    }));
    Counts after = engine.Experts().routes;
    counted.push_back({source.name, static_cast<int64_t>(source.ids.size()), Difference(after, before)});
    before = std::move(after);
  }
  return counted;
}

Json ToJson(const engine::ModelInfo& info, int32_t window, const Counts& counts,
            const std::vector<SourceCounts>& sources) {
  int64_t tokens = 0;
  for (const SourceCounts& source : sources) tokens += source.tokens;
  Json layers = Json::array();
  for (size_t l = 0; l < counts.size(); ++l) {
    if (counts[l].empty()) continue;
    const Skew skew = MeasureSkew(counts[l]);
    layers.push_back({{"layer", l},
                      {"counts", counts[l]},
                      {"top_share", skew.top},
                      {"top_quarter_share", skew.top_quarter},
                      {"rarest_share", skew.rarest},
                      {"effective_experts", skew.effective},
                      {"unused", skew.unused}});
  }
  Json by_source = Json::object();
  for (const SourceCounts& source : sources) {
    by_source[source.name] = {{"tokens", source.tokens}, {"counts", source.counts}};
  }
  return {{"model", FileName(info.path)},
          {"tokens", tokens},
          {"window", window},
          {"experts_per_token", info.experts_used},
          {"layers", std::move(layers)},
          {"by_source", std::move(by_source)}};
}

void PrintTable(const Counts& counts, Console& console) {
  Table table({Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.Add({"layer", "most popular", "top quarter", "rarest", "effective", "unused"});
  for (size_t l = 0; l < counts.size(); ++l) {
    if (counts[l].empty()) continue;
    const Skew skew = MeasureSkew(counts[l]);
    table.Add({fmt::format("{}", l), fmt::format("{:.4f}", skew.top), fmt::format("{:.3f}", skew.top_quarter),
               fmt::format("{:.5f}", skew.rarest), fmt::format("{:.1f} of {}", skew.effective, counts[l].size()),
               fmt::format("{}", skew.unused)});
  }
  console.Write(table.Text());
}

// "hot.strp" -> "hot.json"
std::string JsonPath(const std::string& path) {
  return (path.ends_with(".strp") ? path.substr(0, path.size() - 5) : path) + ".json";
}

}  // namespace

Status Profile(const config::ProfileOptions& options, Console& console) {
  BELLHOP_TRY_ASSIGN(const LoadedModel model, LoadModel(options.engine, console));
  engine::TextEngine& engine = *model.engine;
  if (engine.info().experts == 0) {
    return InvalidArgument("{}: a dense model has no experts to profile", engine.info().path);
  }
  const int32_t window = options.corpus.window;
  if (window > engine.info().context) {
    return InvalidArgument("--window {}: larger than the context of {} tokens", window, engine.info().context);
  }
  BELLHOP_TRY_ASSIGN(const std::vector<CorpusSource> corpus, ReadCorpus(options.corpus, engine));
  BELLHOP_TRY_ASSIGN(const std::vector<SourceCounts> sources, CountSources(engine, corpus, window, console));

  const engine::ExpertStats stats = engine.Experts();
  BELLHOP_TRY_ASSIGN(const std::vector<std::byte> profile, engine::MakeStrpProfile(stats));
  const Json report = ToJson(engine.info(), window, stats.routes, sources);
  BELLHOP_TRY(engine::WriteWholeFile(options.out, {reinterpret_cast<const char*>(profile.data()), profile.size()}));
  const std::string counts_path = JsonPath(options.out);
  BELLHOP_TRY(engine::WriteWholeFile(counts_path, PrettyJson(report) + "\n"));
  if (console.json()) {
    console.WriteJson(report);
  } else {
    PrintTable(stats.routes, console);
    console.Say(fmt::format("wrote {} and {}", options.out, counts_path));
  }
  return Status();
}

}  // namespace bellhop::cli
