#include "text/tokenizer_base.h"

#include <algorithm>
#include <utility>

namespace bellhop::text {

using manifest::TokenType;

TokenizerBase::TokenizerBase(TokenTable table) : table_(std::move(table)), specials_(table_) {}

Result<std::vector<TokenId>> TokenizerBase::Encode(std::string_view text, const EncodeOptions& options) const {
  // Positions inside the mergers are 32 bits wide, and SPM writes a space as three bytes.
  constexpr size_t kMaxTextBytes = size_t{1} << 29;
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("text of {} bytes: at most {} can be tokenized at once; split it", text.size(),
                           kMaxTextBytes);
  }
  std::vector<TokenId> ids;
  if (options.add_special && table_.adds_bos()) ids.push_back(*table_.bos());
  if (!text.empty()) {
    BELLHOP_TRY_ASSIGN(const std::unique_ptr<EncodeState> state, NewState());
    bool starts_text = true;
    for (const TextFragment& fragment : specials_.Split(text, options.parse_special)) {
      if (fragment.token >= 0) {
        ids.push_back(fragment.token);
      } else {
        BELLHOP_TRY(EncodeFragment(fragment.text, starts_text, state.get(), &ids));
      }
      starts_text = fragment.token >= 0;
    }
  }
  if (options.add_special && table_.adds_eos()) ids.push_back(*table_.eos());
  return ids;
}

void TokenizerBase::AppendTokenBytes(TokenId id, bool special, std::string* out) const {
  if (!table_.Contains(id)) return;
  const std::string_view token_text = table_.text(id);
  switch (table_.type(id)) {
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kUnused:
      if (special) out->append(token_text);
      return;
    case TokenType::kUserDefined: out->append(token_text); return;
    case TokenType::kByte:
      if (const int byte = ByteTokenValue(token_text); byte >= 0) {
        out->push_back(static_cast<char>(byte));
        return;
      }
      break;
    case TokenType::kNormal: break;
  }
  AppendNormal(token_text, out);
}

std::string TokenizerBase::TokenBytes(TokenId id, bool special) const {
  std::string out;
  AppendTokenBytes(id, special, &out);
  return out;
}

std::string TokenizerBase::Decode(HostSpan<const TokenId> ids, bool special) const {
  std::string out;
  for (const TokenId id : ids) AppendTokenBytes(id, special, &out);
  if (strips_leading_space() && !out.empty() && out.front() == ' ') out.erase(0, 1);
  return out;
}

bool TokenizerBase::IsControl(TokenId id) const {
  if (!table_.Contains(id)) return false;
  const TokenType type = table_.type(id);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool TokenizerBase::IsEndOfGeneration(TokenId id) const {
  const std::vector<TokenId>& set = table_.end_of_generation();
  return std::binary_search(set.begin(), set.end(), id);
}

}  // namespace bellhop::text
