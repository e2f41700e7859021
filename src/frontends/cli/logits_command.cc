#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/process.h"
#include "frontends/cli/commands.h"
#include "frontends/cli/model_loading.h"
#include "frontends/cli/npy.h"
#include "frontends/cli/table.h"
#include "frontends/cli/text_source.h"

namespace bellhop::cli {
namespace {

using Json = nlohmann::ordered_json;
using Routes = engine::LogitsResult::Routes;

Result<std::vector<TokenId>> InputTokens(const config::LogitsOptions& options, const std::string& text,
                                         const engine::TextEngine& engine) {
  if (!options.ids) return engine.Tokenize(text, !options.no_bos, true);
  for (const TokenId id : *options.ids) {
    if (id >= engine.info().vocab) {
      return InvalidArgument("--ids {}: the vocabulary has tokens 0 to {}", id, engine.info().vocab - 1);
    }
  }
  return *options.ids;
}

// The `count` tokens with the largest logits, largest first, the lower number among equals.
std::vector<TokenId> Top(HostSpan<const float> logits, size_t count) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](TokenId a, TokenId b) {
                      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  order.resize(count);
  return order;
}

double LogSumExp(HostSpan<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float value : logits) sum += std::exp(value - top);
  return top + std::log(sum);
}

// Routes come for every position of the prompt, also when logits come for the last alone.
Json RoutesJson(const Routes& routes, size_t positions) {
  Json ids = Json::array(), weights = Json::array();
  const auto used = static_cast<std::ptrdiff_t>(routes.used);
  for (size_t p = 0; p < positions; ++p) {
    const auto at = static_cast<std::ptrdiff_t>(p) * used;
    ids.push_back(std::vector<int32_t>(routes.ids.begin() + at, routes.ids.begin() + at + used));
    weights.push_back(std::vector<float>(routes.weights.begin() + at, routes.weights.begin() + at + used));
  }
  return {{"layer", routes.layer}, {"ids", std::move(ids)}, {"weights", std::move(weights)}, {"gaps", routes.gaps}};
}

HostSpan<const float> Row(const engine::LogitsResult& result, size_t row) {
  const auto vocab = static_cast<size_t>(result.vocab);
  return {result.values.data() + row * vocab, vocab};
}

void PrintJson(const config::LogitsOptions& options, const std::vector<TokenId>& ids, const engine::TextEngine& engine,
               const engine::LogitsResult& result, Console& console) {
  Json positions = Json::array();
  for (size_t r = 0; r < result.positions.size(); ++r) {
    const HostSpan<const float> logits = Row(result, r);
    const std::vector<TokenId> top = Top(logits, static_cast<size_t>(options.top));
    std::vector<float> values;
    for (const TokenId id : top) values.push_back(logits[static_cast<size_t>(id)]);
    positions.push_back({{"position", result.positions[r]},
                         {"top_ids", top},
                         {"top_logits", values},
                         {"log_sum_exp", LogSumExp(logits)}});
  }
  Json object = {{"model", FileName(engine.info().path)},
                 {"ids", ids},
                 {"vocab", result.vocab},
                 {"act", engine.info().act},
                 {"isa", engine.info().isa},
                 {"positions", std::move(positions)}};
  if (options.experts) {
    object["experts"] = Json::array();
    for (const Routes& routes : result.routes) object["experts"].push_back(RoutesJson(routes, ids.size()));
  }
  if (!options.out.empty()) object["out"] = options.out;
  console.WriteJson(object);
}

void PrintTables(const config::LogitsOptions& options, const std::vector<TokenId>& ids,
                 const engine::TextEngine& engine, const engine::LogitsResult& result, Console& console) {
  const auto piece = [&](TokenId id) {
    return Json(engine.TokenText(id)).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  for (size_t r = 0; r < result.positions.size() && options.top > 0; ++r) {
    const HostSpan<const float> logits = Row(result, r);
    const auto position = static_cast<size_t>(result.positions[r]);
    console.Print("position {}, after {} {}\n", position, ids[position], piece(ids[position]));
    const double total = LogSumExp(logits);
    Table table({Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
    table.Add({"token", "logit", "p", "text"});
    for (const TokenId id : Top(logits, static_cast<size_t>(options.top))) {
      const float logit = logits[static_cast<size_t>(id)];
      table.Add({fmt::format("{}", id), fmt::format("{:.5f}", logit), fmt::format("{:.4f}", std::exp(logit - total)),
                 piece(id)});
    }
    console.Write(table.Text(2));
  }
  for (const Routes& routes : result.routes) {
    console.Print("experts of layer {}\n", routes.layer);
    for (size_t p = 0; p < ids.size(); ++p) {
      std::string line = fmt::format("  position {}:", p);
      for (size_t u = 0; u < static_cast<size_t>(routes.used); ++u) {
        const size_t at = p * static_cast<size_t>(routes.used) + u;
        line += fmt::format(" {} ({:.4f})", routes.ids[at], routes.weights[at]);
      }
      console.Write(line + "\n");
    }
  }
}

}  // namespace

Status Logits(const config::LogitsOptions& options, Console& console) {
  std::string text;
  if (!options.ids) {
    BELLHOP_TRY_ASSIGN(text, ReadInput(options.input));
  }
  BELLHOP_TRY_ASSIGN(const LoadedModel model, LoadModel(options.engine, console));
  engine::TextEngine& engine = *model.engine;
  if (options.experts && engine.info().experts == 0) {
    return InvalidArgument("--experts: {} is a dense model without experts", engine.info().path);
  }
  BELLHOP_TRY_ASSIGN(const std::vector<TokenId> ids, InputTokens(options, text, engine));
  BELLHOP_TRY_ASSIGN(const engine::LogitsResult result, engine.Logits(ids, options.all, options.experts));
  if (!options.out.empty()) {
    const auto rows = static_cast<int64_t>(result.positions.size());
    BELLHOP_TRY(engine::WriteWholeFile(options.out, NpyFile(result.values, rows, result.vocab)));
    console.Say(fmt::format("wrote {}: float32 [{}, {}]", options.out, rows, result.vocab));
  }
  if (console.json()) {
    PrintJson(options, ids, engine, result, console);
  } else {
    PrintTables(options, ids, engine, result, console);
  }
  return Status();
}

}  // namespace bellhop::cli
