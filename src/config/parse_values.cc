#include "config/parse_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "base/units.h"

namespace bellhop::config {
namespace {

constexpr size_t kMaxQuoted = 60;

std::optional<int64_t> ParseInteger(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ParseReal(std::string_view text) {
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value)) return std::nullopt;
  return value;
}

std::string RangeText(int64_t low, int64_t high, const std::string& meaning) {
  std::string text = high >= std::numeric_limits<int32_t>::max()
                         ? fmt::format("a whole number, {} or more", low)
                         : fmt::format("a whole number from {} to {}", low, high);
  if (!meaning.empty()) text += fmt::format(" ({})", meaning);
  return text;
}

Result<int64_t> IntegerInRange(std::string_view text, int64_t low, int64_t high, const std::string& meaning) {
  const std::optional<int64_t> value = ParseInteger(text);
  if (!value || *value < low || *value > high) return InvalidArgument("expects {}", RangeText(low, high, meaning));
  return *value;
}

// Calls `item` for each part between commas.
template <typename Item>
Status ForEachItem(std::string_view text, const Item& item) {
  for (size_t at = 0;;) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string_view part = text.substr(at, comma - at);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    BELLHOP_TRY(item(part));
    if (comma == text.size()) return Status();
    at = comma + 1;
  }
}

// Clears a list that still holds its default, once. The flag lives as long as the setter, in whatever copy of it.
class DefaultsOnce {
 public:
  template <typename List>
  void ClearFirst(List* list) {
    if (!*done_) list->clear();
    *done_ = true;
  }

 private:
  std::shared_ptr<bool> done_ = std::make_shared<bool>(false);  // std::function copies its target
};

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string QuoteValue(std::string_view value) {
  std::string quoted = "'";
  for (const char c : value) {
    if (quoted.size() > kMaxQuoted && (static_cast<unsigned char>(c) & 0xC0) != 0x80) return quoted + "...'";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    size_t distance = EditDistance(word, candidate);
    // A beginning of the full name ("--temperature" for "temp" and the reverse) is a better guess than a typo.
    const bool begins =
        word.size() >= 3 && candidate.size() >= 3 && (candidate.starts_with(word) || word.starts_with(candidate));
    if (begins) distance = 1;
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string JoinWords(const std::vector<std::string>& words) {
  std::string joined;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) joined += i + 1 == words.size() ? " or " : ", ";
    joined += words[i];
  }
  return joined;
}

Setter IntegerSetter(int32_t* out, int64_t low, int64_t high, std::string meaning) {
  return [=](std::string_view text) -> Status {
    BELLHOP_TRY_ASSIGN(const int64_t value, IntegerInRange(text, low, high, meaning));
    *out = static_cast<int32_t>(value);
    return Status();
  };
}

Setter CountSetter(uint32_t* out, int64_t low, int64_t high, std::string meaning) {
  return [=](std::string_view text) -> Status {
    BELLHOP_TRY_ASSIGN(const int64_t value, IntegerInRange(text, low, high, meaning));
    *out = static_cast<uint32_t>(value);
    return Status();
  };
}

Setter RealSetter(float* out, double low, double high) {
  return [=](std::string_view text) -> Status {
    const std::optional<double> value = ParseReal(text);
    if (!value || *value < low || *value > high) return InvalidArgument("expects a number from {} to {}", low, high);
    *out = static_cast<float>(*value);
    return Status();
  };
}

Setter SeedSetter(std::optional<uint64_t>* out) {
  return [=](std::string_view text) -> Status {
    if (text == "-1") {
      out->reset();
      return Status();
    }
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      return InvalidArgument("expects a whole number from 0 to {}, or -1 for a random one", UINT64_MAX);
    }
    *out = value;
    return Status();
  };
}

Setter TextSetter(std::string* out) {
  return [=](std::string_view text) -> Status {
    if (text.empty()) return InvalidArgument("expects a value that is not empty");
    *out = std::string(text);
    return Status();
  };
}

Setter LiteralSetter(std::optional<std::string>* out) {
  return [=](std::string_view text) -> Status {
    *out = std::string(text);
    return Status();
  };
}

Setter FlagSetter(bool* out, bool value_when_on) {
  return [=](std::string_view text) -> Status {
    if (text == "true" || text == "1" || text == "on" || text == "yes") {
      *out = value_when_on;
    } else if (text == "false" || text == "0" || text == "off" || text == "no") {
      *out = !value_when_on;
    } else {
      return InvalidArgument("expects true or false (also 1, 0, on, off, yes, no)");
    }
    return Status();
  };
}

Setter SizeSetter(std::optional<uint64_t>* out) {
  return [=](std::string_view text) -> Status {
    if (text == "auto") {
      out->reset();
      return Status();
    }
    const Result<uint64_t> bytes = ParseByteSize(text);
    if (!bytes.ok()) return InvalidArgument("expects a size such as 12GiB, 12GB, 512MiB or 0, or auto");
    *out = *bytes;
    return Status();
  };
}

Setter ByteSizeSetter(uint64_t* out) {
  return [=](std::string_view text) -> Status {
    const Result<uint64_t> bytes = ParseByteSize(text);
    if (!bytes.ok() || *bytes == 0) return InvalidArgument("expects a size such as 2GiB, 2GB or 512MiB");
    *out = *bytes;
    return Status();
  };
}

Setter WholeSetter(uint64_t* out) {
  return [=](std::string_view text) -> Status {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      return InvalidArgument("expects a whole number from 0 to {}", UINT64_MAX);
    }
    *out = value;
    return Status();
  };
}

Setter ExpertShareSetter(std::optional<uint32_t>* count, std::optional<double>* percent) {
  return [=](std::string_view text) -> Status {
    if (!text.empty() && text.back() == '%') {
      const std::optional<double> value = ParseReal(text.substr(0, text.size() - 1));
      if (value && *value >= 0 && *value <= 100) {
        *percent = *value;
        return Status();
      }
    } else if (const std::optional<int64_t> value = ParseInteger(text); value && *value >= 0 && *value <= 1'000'000) {
      *count = static_cast<uint32_t>(*value);
      return Status();
    }
    return InvalidArgument("expects a number of experts per layer, or a share of all from 0% to 100%");
  };
}

Setter IntegerListSetter(std::vector<int32_t>* out, int64_t low, int64_t high) {
  return [=, defaults = DefaultsOnce()](std::string_view text) mutable -> Status {
    defaults.ClearFirst(out);
    return ForEachItem(text, [&](std::string_view item) -> Status {
      const std::optional<int64_t> value = ParseInteger(item);
      if (!value || *value < low || *value > high) {
        return InvalidArgument("expects {}, or several with commas between them", RangeText(low, high, ""));
      }
      out->push_back(static_cast<int32_t>(*value));
      return Status();
    });
  };
}

Setter IdListSetter(std::optional<std::vector<int32_t>>* out) {
  return [=](std::string_view text) -> Status {
    if (!*out) out->emplace();
    return ForEachItem(text, [&](std::string_view item) -> Status {
      const std::optional<int64_t> value = ParseInteger(item);
      if (!value || *value < 0 || *value > std::numeric_limits<int32_t>::max()) {
        return InvalidArgument("expects token numbers with commas between them, such as 1,2,3");
      }
      (*out)->push_back(static_cast<int32_t>(*value));
      return Status();
    });
  };
}

Setter PercentListSetter(std::vector<double>* out) {
  return [=, defaults = DefaultsOnce()](std::string_view text) mutable -> Status {
    defaults.ClearFirst(out);
    return ForEachItem(text, [&](std::string_view item) -> Status {
      if (!item.empty() && item.back() == '%') item.remove_suffix(1);
      const std::optional<double> value = ParseReal(item);
      if (!value || *value < 0 || *value > 100) {
        return InvalidArgument("expects percentages from 0 to 100 with commas between them");
      }
      out->push_back(*value);
      return Status();
    });
  };
}

Setter NameListSetter(std::vector<std::string>* out, std::vector<std::string> names) {
  return [=, defaults = DefaultsOnce()](std::string_view text) mutable -> Status {
    defaults.ClearFirst(out);
    return ForEachItem(text, [&](std::string_view item) -> Status {
      if (std::find(names.begin(), names.end(), item) == names.end()) {
        return InvalidArgument("expects {}, or several with commas between them", JoinWords(names));
      }
      out->emplace_back(item);
      return Status();
    });
  };
}

Setter TextItemsSetter(std::vector<std::string>* out) {
  return [=, defaults = DefaultsOnce()](std::string_view text) mutable -> Status {
    defaults.ClearFirst(out);
    return ForEachItem(text, [&](std::string_view item) -> Status {
      if (item.empty()) return InvalidArgument("expects a name, or several with commas between them");
      out->emplace_back(item);
      return Status();
    });
  };
}

Setter TextListSetter(std::vector<std::string>* out) {
  return [=](std::string_view text) -> Status {
    if (text.empty()) return InvalidArgument("expects text that is not empty");
    out->emplace_back(text);
    return Status();
  };
}

Setter LogitBiasSetter(std::vector<std::pair<int32_t, float>>* out) {
  return [=](std::string_view text) -> Status {
    const size_t split = text.find_first_of("+-=");
    if (split != std::string_view::npos && split > 0) {
      const std::optional<int64_t> token = ParseInteger(text.substr(0, split));
      const std::optional<double> bias = ParseReal(text.substr(text[split] == '=' ? split + 1 : split));
      const bool possible = bias && *bias < std::numeric_limits<float>::max() &&
                            (std::isinf(*bias) || *bias > -std::numeric_limits<float>::max());
      if (token && *token >= 0 && *token <= std::numeric_limits<int32_t>::max() && possible) {
        out->emplace_back(static_cast<int32_t>(*token), static_cast<float>(*bias));
        return Status();
      }
    }
    return InvalidArgument("expects TOKEN+BIAS or TOKEN-BIAS, such as 15043+1.5, or 15043-inf to ban the token");
  };
}

Setter AssignmentListSetter(std::vector<std::pair<std::string, std::string>>* out, std::string what) {
  return [=](std::string_view text) -> Status {
    const size_t split = text.rfind('=');
    if (split == std::string_view::npos || split == 0 || split + 1 == text.size()) {
      return InvalidArgument("expects {}", what);
    }
    out->emplace_back(std::string(text.substr(0, split)), std::string(text.substr(split + 1)));
    return Status();
  };
}

std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char next = text[i + 1];
    const size_t found = std::string_view("nrt\\\"'0").find(next);
    if (found != std::string_view::npos) {
      out += std::string_view("\n\r\t\\\"'\0", 7)[found];
      ++i;
    } else if (next == 'x' && i + 3 < text.size() && HexDigit(text[i + 2]) >= 0 && HexDigit(text[i + 3]) >= 0) {
      out += static_cast<char>(HexDigit(text[i + 2]) * 16 + HexDigit(text[i + 3]));
      i += 3;
    } else {
      out += '\\';
    }
  }
  return out;
}

}  // namespace bellhop::config
