// Tokenizer and chat template of a loaded model.
#include "engine/text_engine_impl.h"
#include "sys/clock.h"

namespace bellhop::engine {

Result<std::vector<TokenId>> TextEngineImpl::Tokenize(std::string_view text, bool add_special,
                                                      bool parse_special) const {
  if (tokenizer_ == nullptr) return tokenizer_status_;
  return tokenizer_->Encode(text, {.add_special = add_special, .parse_special = parse_special});
}

std::string TextEngineImpl::Detokenize(HostSpan<const TokenId> ids, bool special) const {
  return tokenizer_ == nullptr ? std::string() : tokenizer_->Decode(ids, special);
}

std::string TextEngineImpl::TokenText(TokenId id) const {
  return tokenizer_ == nullptr ? std::string() : tokenizer_->TokenBytes(id, true);
}

Result<std::string> TextEngineImpl::RenderChat(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                               const nlohmann::ordered_json& extra) const {
  if (!chat_template_) return chat_template_status_;
  nlohmann::ordered_json context;
  context["messages"] = messages;
  context["add_generation_prompt"] = add_generation_prompt;
  auto token_text = [&](std::optional<TokenId> id) { return id ? TokenText(*id) : std::string(); };
  context["bos_token"] = token_text(tokenizer_ == nullptr ? std::nullopt : tokenizer_->bos());
  context["eos_token"] = token_text(tokenizer_ == nullptr ? std::nullopt : tokenizer_->eos());
  for (const auto& [key, value] : extra.items()) context[key] = value;
  return chat_template_->Render(context, sys::UnixSeconds());
}

Result<std::vector<TokenId>> TextEngineImpl::TokenizeChat(std::string_view rendered) const {
  if (tokenizer_ == nullptr) return tokenizer_status_;
  BELLHOP_TRY_ASSIGN(std::vector<TokenId> ids,
                     tokenizer_->Encode(rendered, {.add_special = true, .parse_special = true}));
  const std::optional<TokenId> bos = tokenizer_->bos();
  if (tokenizer_->adds_bos() && ids.size() >= 2 && bos && ids[0] == *bos && ids[1] == *bos) ids.erase(ids.begin());
  return ids;
}

}  // namespace bellhop::engine
