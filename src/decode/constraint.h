// What restricts a sequence while it is generated: a grammar, from the start or from a trigger on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "decode/grammar.h"

namespace bellhop::decode {

// With triggers everything is allowed until the generated text, control tokens' text included, contains one; the
// grammar begins right behind the trigger that ends first, of those the longest. A trigger may span tokens and end
// inside one. A trigger that begins with kTextStart matches at the very start of the generated text alone. Without
// triggers the grammar holds from the start. It holds until the end: once it is complete, end of generation is allowed,
// and more text only where the grammar goes on. Not thread-safe.
class Constraint {
 public:
  static constexpr char kTextStart = '\x02';

  Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenIndex> index,
             const std::vector<std::string>& triggers = {});

  // The tokens that may come next, for Sampler::Sample; empty: all of them. Valid until the next call. After a failure
  // no token is allowed. Allocates nothing where the grammar has been before.
  HostSpan<const uint64_t> Mask();

  // kInvalidArgument: a token that Mask does not allow, the rest of a token after a trigger that the grammar cannot
  // begin with, or too ambiguous a grammar. After the last two the constraint stays failed.
  Status Accept(TokenId token);

  bool active() const { return active_; }                           // the grammar holds
  bool complete() const { return active_ && matcher_.complete(); }  // and the text may end here
  const Status& status() const { return status_.ok() ? matcher_.status() : status_; }

 private:
  struct Trigger {
    std::string text;
    std::vector<size_t> fallback;  // [i]: longest proper prefix of text that is also a suffix of text[0, i]
    size_t matched = 0;
  };

  bool Advance(char byte);  // true: a trigger ends here

  std::shared_ptr<const TokenIndex> index_;
  GrammarMatcher matcher_;
  std::vector<Trigger> triggers_;
  bool active_ = false;
  Status status_;
  std::vector<uint64_t> mask_;
  bool mask_valid_ = false;
};

}  // namespace bellhop::decode
