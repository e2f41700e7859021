// Setters for the kinds of values that options take, and words about values for error messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/parse_spec.h"

namespace bellhop::config {

// The value in single quotes, on one line and at most 60 characters long.
std::string QuoteValue(std::string_view value);

// The candidate that `word` probably meant, or empty when none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

// `meaning` explains special values: "0: one per core".
Setter IntegerSetter(int32_t* out, int64_t low, int64_t high, std::string meaning = "");
Setter CountSetter(uint32_t* out, int64_t low, int64_t high, std::string meaning = "");
Setter RealSetter(float* out, double low, double high);
Setter SeedSetter(std::optional<uint64_t>* out);
Setter TextSetter(std::string* out);  // not empty
Setter LiteralSetter(std::optional<std::string>* out);
Setter FlagSetter(bool* out, bool value_when_on = true);
Setter SizeSetter(std::optional<uint64_t>* out);
Setter ByteSizeSetter(uint64_t* out);  // a size that cannot be 0 or auto
Setter WholeSetter(uint64_t* out);     // any 64-bit number
// "12" experts per layer or "25%" of all.
Setter ExpertShareSetter(std::optional<uint32_t>* count, std::optional<double>* percent);

// Lists: each value may hold several items with commas between them; the first one replaces the default.
Setter IntegerListSetter(std::vector<int32_t>* out, int64_t low, int64_t high);
Setter IdListSetter(std::optional<std::vector<int32_t>>* out);
Setter PercentListSetter(std::vector<double>* out);
Setter NameListSetter(std::vector<std::string>* out, std::vector<std::string> names);
Setter TextItemsSetter(std::vector<std::string>* out);  // not empty
// Lists of whole values.
Setter TextListSetter(std::vector<std::string>* out);
Setter LogitBiasSetter(std::vector<std::pair<int32_t, float>>* out);
Setter AssignmentListSetter(std::vector<std::pair<std::string, std::string>>* out, std::string what);

std::string JoinWords(const std::vector<std::string>& words);  // "a, b or c"

template <typename E>
Setter ChoiceSetter(E* out, std::vector<std::pair<std::string, E>> choices) {
  return [out, choices = std::move(choices)](std::string_view text) -> Status {
    std::vector<std::string> names;
    for (const auto& [name, value] : choices) {
      if (name == text) {
        *out = value;
        return Status();
      }
      names.push_back(name);
    }
    return InvalidArgument("expects {}", JoinWords(names));
  };
}

// "a\nb" with the backslash sequences \n \r \t \\ \" \' \0 \xHH replaced; others stay as they are.
std::string Unescape(std::string_view text);

}  // namespace bellhop::config
