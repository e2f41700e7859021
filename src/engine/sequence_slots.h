// The places of the service's sequences: KV state, the tokens that it holds, and which earlier prompt a new request may
// continue from.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "engine/running_sequence.h"
#include "model/sequence_state.h"

namespace bellhop::engine {

struct SequenceSlot {
  std::unique_ptr<model::SequenceState> state;
  std::vector<TokenId> tokens;  // what the state holds
  size_t prompt_class = 0;      // of these, the leading ones that were computed as a prompt
  uint64_t last_used = 0;       // larger: later

  std::unique_ptr<RunningSequence> running;  // null: idle
  uint64_t ticket = 0;
  TokenId next = -1;                                       // sampled, not yet computed; -1: the prompt is not complete
  bool started = false;                                    // the prompt's first chunk was chosen
  int64_t submitted_ns = 0, prompt_ns = 0, decode_ns = 0;  // when queued, begun, first token

  bool busy() const { return running != nullptr; }
  bool in_prompt() const { return busy() && next < 0; }
  bool decoding() const { return busy() && next >= 0; }
  void Forget();  // what the state holds, for the next request not to continue from
};

class SequenceSlots {
 public:
  explicit SequenceSlots(std::vector<std::unique_ptr<model::SequenceState>> states);

  std::vector<SequenceSlot>& all() { return slots_; }
  // Where a request with this prompt should run: the idle slot that holds most of its prompt, unless that would throw
  // away much more than it saves; else the one unused for longest. Null: all are busy.
  SequenceSlot* Choose(const SequenceRequest& request);
  // Makes the slot hold a prefix of its request's prompt, taken from its own state or shared with another slot's.
  // Returns its length, less than the prompt's: the last token is always computed, for its logits.
  Result<int32_t> TakePrefix(SequenceSlot& slot);
  void Touch(SequenceSlot& slot) { slot.last_used = ++clock_; }

 private:
  std::vector<SequenceSlot> slots_;
  uint64_t clock_ = 0;
};

}  // namespace bellhop::engine
