#include <cmath>

#include "frontends/cli/commands.h"
#include "frontends/cli/model_loading.h"
#include "frontends/cli/progress.h"
#include "frontends/cli/table.h"
#include "frontends/cli/text_source.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Scored {
  const CorpusSource* source = nullptr;
  engine::PerplexityResult result;
};

std::string SourceName(const CorpusSource& source) { return source.name.empty() ? "(no source)" : source.name; }

Json ToJson(const Scored& scored) {
  return {{"source", scored.source->name},           {"documents", scored.source->documents},
          {"tokens", scored.source->tokens},         {"windows", scored.result.windows},
          {"scored_tokens", scored.result.scored},   {"nll_sum", scored.result.nll_sum},
          {"perplexity", scored.result.perplexity()}};
}

void PrintTable(const std::vector<Scored>& scored, const engine::PerplexityResult& all, Console& console) {
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.Add({"source", "documents", "windows", "scored", "perplexity"});
  const auto row = [&](const std::string& name, int64_t documents, const engine::PerplexityResult& result) {
    table.Add({name, fmt::format("{}", documents), fmt::format("{}", result.windows), fmt::format("{}", result.scored),
               fmt::format("{:.4f}", result.perplexity())});
  };
  int64_t documents = 0;
  for (const Scored& s : scored) {
    documents += s.source->documents;
    if (scored.size() > 1) row(OneLine(SourceName(*s.source)), s.source->documents, s.result);
  }
  row("all", documents, all);
  console.Write(table.Text());
}

}  // namespace

Status Perplexity(const config::PerplexityOptions& options, Console& console) {
  BELLHOP_TRY_ASSIGN(const LoadedModel model, LoadModel(options.engine, console));
  engine::TextEngine& engine = *model.engine;
  const int32_t window = options.corpus.window;
  if (window > engine.info().context) {
    return InvalidArgument("--window {}: larger than the context of {} tokens", window, engine.info().context);
  }
  BELLHOP_TRY_ASSIGN(const std::vector<CorpusSource> sources, ReadCorpus(options.corpus, engine));

  int64_t total_tokens = 0, done_tokens = 0;
  for (const CorpusSource& source : sources) total_tokens += static_cast<int64_t>(source.ids.size());
  std::vector<Scored> scored;
  engine::PerplexityResult all;
  Progress progress(console, "perplexity");
  for (const CorpusSource& source : sources) {
    if (source.ids.empty()) {
      console.Say(fmt::format("note: source {} has {} tokens, less than a window of {}: left out", SourceName(source),
                              source.tokens, window));
      continue;
    }
    BELLHOP_TRY_ASSIGN(engine::PerplexityResult result,
                       engine.Perplexity(source.ids, window, [&](int64_t windows, int64_t) {
                         progress.Update(done_tokens + windows * window, total_tokens, source.name);
                       }));
    done_tokens += static_cast<int64_t>(source.ids.size());
    all.nll_sum += result.nll_sum;
    all.scored += result.scored;
    all.windows += result.windows;
    all.elapsed_ms += result.elapsed_ms;
    scored.push_back({&source, result});
  }
  progress.Clear();
  if (console.json()) {
    Json list = Json::array();
    for (const Scored& s : scored) list.push_back(ToJson(s));
    console.WriteJson({{"model", FileName(engine.info().path)},
                       {"window", window},
                       {"perplexity", all.perplexity()},
                       {"nll_sum", all.nll_sum},
                       {"scored_tokens", all.scored},
                       {"windows", all.windows},
                       {"elapsed_ms", all.elapsed_ms},
                       {"sources", std::move(list)}});
  } else {
    PrintTable(scored, all, console);
    console.Say(fmt::format("{:.1f} tokens/s", static_cast<double>(done_tokens) * 1e3 / all.elapsed_ms));
  }
  return Status();
}

}  // namespace bellhop::cli
