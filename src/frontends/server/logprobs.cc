#include "frontends/server/logprobs.h"

namespace bellhop::server {
namespace {

Json Entry(const engine::TextEngine& engine, TokenId id, float logprob) {
  const std::string bytes = engine.TokenText(id);
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", std::move(numbers)}};
}

}  // namespace

Json TokenLogprobs(const engine::TextEngine& engine, const std::vector<engine::SampledToken>& tokens) {
  Json entries = Json::array();
  for (const engine::SampledToken& token : tokens) {
    Json entry = Entry(engine, token.id, token.logprob);
    entry["top_logprobs"] = Json::array();
    for (const decode::TokenLogprob& top : token.top) {
      entry["top_logprobs"].push_back(Entry(engine, top.id, top.logprob));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace bellhop::server
