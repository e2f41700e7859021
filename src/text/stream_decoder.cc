#include <string>
#include <utility>

#include "text/tokenizer.h"
#include "text/unicode.h"

namespace bellhop::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool special) : tokenizer_(tokenizer), special_(special) {}

std::string StreamDecoder::Push(TokenId id) {
  const std::string bytes = tokenizer_.TokenBytes(id, special_);
  if (bytes.empty()) return {};
  const bool strip = at_start_ && tokenizer_.strips_leading_space() && bytes.front() == ' ';
  at_start_ = false;
  pending_.append(bytes, strip ? 1 : 0);
  std::string out;
  pending_.erase(0, DrainUtf8(pending_, false, &out));
  return out;
}

std::string StreamDecoder::Flush() {
  std::string out;
  DrainUtf8(pending_, true, &out);
  pending_.clear();
  return out;
}

}  // namespace bellhop::text
