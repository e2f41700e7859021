// Reads the fields of a request's object: every one is checked, errors name the field by its path, and fields that
// nobody asked for are refused rather than ignored.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "frontends/server/api_call.h"

namespace bellhop::server {

// A 400 that names the field.
ApiError FieldError(std::string_view path, std::string message);
// "a string", "null", "an array": for messages.
std::string_view JsonKind(const Json& value);

// A field that is absent or null gives nothing. The first error stays; after it nothing is read any more.
class FieldReader {
 public:
  // `path` of the object itself, "messages[2]"; empty for the body.
  explicit FieldReader(const Json& object, std::string path = "");

  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Integer(std::string_view name, int64_t least, int64_t most);
  std::optional<double> Number(std::string_view name, double least, double most);
  std::optional<std::string> String(std::string_view name);
  std::optional<std::string> Choice(std::string_view name, std::initializer_list<std::string_view> choices);
  const Json* Object(std::string_view name);
  const Json* Array(std::string_view name);
  const Json* Any(std::string_view name);  // null counts as absent

  // Known fields that change nothing in the answer.
  void Accept(std::initializer_list<std::string_view> names);
  // Known fields that cannot be honoured, unless their value is null or equals `harmless`.
  void Refuse(std::string_view name, const Json& harmless, std::string_view why);
  void Fail(std::string_view name, std::string message);
  void Fail(ApiError error);
  // Refuses what was neither read nor accepted.
  void RejectUnknown();

  std::string PathOf(std::string_view name) const;
  bool ok() const { return !error_.has_value(); }
  const ApiError& error() const { return *error_; }

 private:
  const Json* Find(std::string_view name);
  const Json* Typed(std::string_view name, bool (*is)(const Json&), std::string_view expected);

  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
  std::optional<ApiError> error_;
};

}  // namespace bellhop::server
