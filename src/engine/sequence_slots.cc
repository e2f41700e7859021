#include "engine/sequence_slots.h"

#include <algorithm>

namespace bellhop::engine {
namespace {

// Only what was computed as a prompt may be reused (docs/decisions/0006), and never the prompt's last token.
int32_t CommonPrefix(const SequenceSlot& slot, const std::vector<TokenId>& prompt) {
  const size_t limit = std::min({slot.prompt_class, slot.tokens.size(), prompt.size() - 1});
  size_t same = 0;
  while (same < limit && slot.tokens[same] == prompt[same]) ++same;
  return slot.state->ResumePoint(static_cast<int32_t>(same));
}

}  // namespace

void SequenceSlot::Forget() {
  state->Reset();
  tokens.clear();
  prompt_class = 0;
}

SequenceSlots::SequenceSlots(std::vector<std::unique_ptr<model::SequenceState>> states) : slots_(states.size()) {
  for (size_t i = 0; i < states.size(); ++i) {
    slots_[i].state = std::move(states[i]);
    slots_[i].tokens.reserve(static_cast<size_t>(slots_[i].state->max_tokens()));
  }
}

SequenceSlot* SequenceSlots::Choose(const SequenceRequest& request) {
  SequenceSlot *oldest = nullptr, *best = nullptr;
  int32_t best_prefix = 0;
  for (SequenceSlot& slot : slots_) {
    if (slot.busy()) continue;
    if (oldest == nullptr || slot.last_used < oldest->last_used) oldest = &slot;
    const int32_t prefix = request.reuse_prefix ? CommonPrefix(slot, request.prompt) : 0;
    if (prefix > best_prefix) {
      best = &slot;
      best_prefix = prefix;
    }
  }
  // A conversation is not cut back for the few tokens that all prompts begin with: those are shared.
  const bool continues = best != nullptr && static_cast<size_t>(best_prefix) * 2 >= best->prompt_class;
  return continues ? best : oldest;
}

Result<int32_t> SequenceSlots::TakePrefix(SequenceSlot& slot) {
  const SequenceRequest& request = slot.running->request();
  SequenceSlot* source = &slot;
  int32_t prefix = 0;
  if (request.reuse_prefix) {
    prefix = CommonPrefix(slot, request.prompt);
    for (SequenceSlot& other : slots_) {
      const int32_t length = &other == &slot ? 0 : CommonPrefix(other, request.prompt);
      if (length > prefix) {
        source = &other;
        prefix = length;
      }
    }
  }
  if (source == &slot) {
    BELLHOP_TRY(slot.state->Truncate(prefix));
    slot.tokens.resize(static_cast<size_t>(prefix));
  } else {
    slot.Forget();
    BELLHOP_TRY(slot.state->ShareFrom(*source->state, prefix));
    slot.tokens.assign(source->tokens.begin(), source->tokens.begin() + prefix);
  }
  slot.prompt_class = slot.tokens.size();
  return prefix;
}

}  // namespace bellhop::engine
