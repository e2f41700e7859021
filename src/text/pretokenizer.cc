#include "text/pretokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace bellhop::text {
namespace {

// Every pattern is linear: from one start position it takes a small multiple of the characters left. The cap is there
// for a pattern added without that property.
uint32_t StepLimit(size_t bytes) {
  const uint64_t limit = 1'000'000 + 8 * static_cast<uint64_t>(bytes);
  return static_cast<uint32_t>(std::min<uint64_t>(limit, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

Result<PreTokenizer> PreTokenizer::Create(const PreTokenizerSpec& spec, bool allow_jit) {
  PreTokenizer out;
  for (const std::string& pattern : spec.patterns) {
    BELLHOP_TRY_ASSIGN(Regex regex, Regex::Compile(pattern, allow_jit));
    out.regexes_.push_back(std::move(regex));
  }
  return out;
}

Status PreTokenizer::Split(std::string_view text, RegexScratch* scratch, std::vector<TextPiece>* pieces) const {
  pieces->clear();
  if (text.empty()) return {};
  pieces->push_back({0, text.size()});
  std::vector<TextPiece> next;
  for (const Regex& regex : regexes_) {
    next.clear();
    next.reserve(pieces->size() + text.size() / 4);
    for (const TextPiece& piece : *pieces) {
      const std::string_view subject = text.substr(piece.begin, piece.end - piece.begin);
      const uint32_t max_steps = StepLimit(subject.size());
      size_t at = 0;
      while (at < subject.size()) {
        const RegexMatch match = regex.Find(subject, at, max_steps, scratch);
        if (match.outcome == RegexOutcome::kLimit) {
          return InvalidArgument("text of {} bytes at byte {}: too many steps for the pre-tokenizer; split the text",
                                 text.size(), piece.begin + at);
        }
        if (match.outcome == RegexOutcome::kNoMatch || match.end == match.begin) break;
        if (match.begin > at) next.push_back({piece.begin + at, piece.begin + match.begin});
        next.push_back({piece.begin + match.begin, piece.begin + match.end});
        at = match.end;
      }
      if (at < subject.size()) next.push_back({piece.begin + at, piece.end});
    }
    pieces->swap(next);
  }
  return {};
}

}  // namespace bellhop::text
