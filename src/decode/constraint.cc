#include "decode/constraint.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace bellhop::decode {

Constraint::Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenIndex> index,
                       const std::vector<std::string>& triggers)
    : index_(std::move(index)), matcher_(std::move(grammar), index_), active_(triggers.empty()) {
  for (const std::string& text : triggers) {
    if (text.empty()) active_ = true;
    Trigger trigger{.text = text, .fallback = std::vector<size_t>(text.size(), 0)};
    for (size_t i = 1, length = 0; i < text.size(); ++i) {
      while (length > 0 && text[i] != text[length]) length = trigger.fallback[length - 1];
      if (text[i] == text[length]) ++length;
      trigger.fallback[i] = length;
    }
    triggers_.push_back(std::move(trigger));
  }
  if (!active_) active_ = Advance(kTextStart);
  mask_.resize((static_cast<size_t>(index_->vocab_size()) + 63) / 64);
}

bool Constraint::Advance(char byte) {
  bool found = false;
  for (Trigger& trigger : triggers_) {
    size_t& matched = trigger.matched;
    while (matched > 0 && trigger.text[matched] != byte) matched = trigger.fallback[matched - 1];
    if (trigger.text[matched] == byte) ++matched;
    found = found || matched == trigger.text.size();
  }
  return found;
}

HostSpan<const uint64_t> Constraint::Mask() {
  if (!active_) return {};
  if (!mask_valid_) {
    if (status_.ok()) {
      matcher_.AllowedTokens(mask_);
    } else {
      std::fill(mask_.begin(), mask_.end(), 0);
    }
    mask_valid_ = true;
  }
  return mask_;
}

Status Constraint::Accept(TokenId token) {
  BELLHOP_TRY(status_);
  if (token < 0 || token >= index_->vocab_size()) {
    return InvalidArgument("grammar: token {} is outside the vocabulary of {}", token, index_->vocab_size());
  }
  mask_valid_ = false;
  if (active_) return matcher_.Accept(token);
  const std::string_view text = index_->TokenText(token);
  for (size_t i = 0; i < text.size(); ++i) {
    if (!Advance(text[i])) continue;
    active_ = true;
    const std::string_view rest = text.substr(i + 1);
    if (rest.empty()) return Status();
    status_ = matcher_.AcceptText(rest).WithContext("the text right after a grammar's trigger, in the same token");
    return status_;
  }
  return Status();
}

}  // namespace bellhop::decode
