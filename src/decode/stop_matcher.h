// Stop strings in a stream of text. They may span any number of tokens, begin inside one, and overlap.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace bellhop::decode {

// The stop is the match that ends first; of matches that end at the same byte the longest, that is the one that starts
// first; of equal strings the first in the list. Text is cut exactly before it. The rule looks at the whole text, so
// the result does not depend on how the text was split into pieces, and generation stops at the first byte that
// completes a stop string.
//
// Text that may still turn out to be the beginning of a stop is held back, and nothing else, save for the bytes of an
// unfinished UTF-8 character at the end of a piece: the output never splits a character. Malformed bytes pass through.
class StopMatcher {
 public:
  // An empty list matches nothing. kInvalidArgument, naming the entry: an empty string, or one that is not UTF-8.
  static Result<StopMatcher> Create(std::vector<std::string> stops);

  struct Output {
    std::string text;      // released by this piece
    bool stopped = false;  // a stop was found, now or in an earlier piece; nothing more comes out
    size_t which = 0;      // with `stopped`: index of the stop in the list
  };
  Output Push(std::string_view piece);

  // The text held back when generation ends by itself; nothing after a stop. The matcher is then as new.
  std::string Flush();

  bool stopped() const { return stopped_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // [i]: longest proper prefix of text that is also a suffix of text[0, i]
    size_t matched = 0;            // the longest prefix of `text` that the stream so far ends with
  };

  explicit StopMatcher(std::vector<Stop> stops) : stops_(std::move(stops)) {}
  bool Advance(char byte);  // true: `which_` is complete
  size_t HeldBytes() const;

  std::vector<Stop> stops_;
  std::string pending_;  // received, not yet released
  bool stopped_ = false;
  size_t which_ = 0;
};

}  // namespace bellhop::decode
