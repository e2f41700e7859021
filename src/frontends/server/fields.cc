#include "frontends/server/fields.h"

#include <cmath>

#include <fmt/format.h>

namespace bellhop::server {

ApiError FieldError(std::string_view path, std::string message) {
  ApiError error;
  error.message = path.empty() ? std::move(message) : fmt::format("{}: {}", path, message);
  error.param = path;
  return error;
}

std::string_view JsonKind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "true or false";
    default: return "a number";
  }
}

FieldReader::FieldReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object()) error_ = FieldError(path_, fmt::format("must be an object, not {}", JsonKind(object)));
}

std::string FieldReader::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* FieldReader::Find(std::string_view name) {
  known_.emplace(name);
  if (!ok()) return nullptr;
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json* FieldReader::Typed(std::string_view name, bool (*is)(const Json&), std::string_view expected) {
  const Json* value = Find(name);
  if (value == nullptr || is(*value)) return value;
  Fail(name, fmt::format("must be {}, not {}", expected, JsonKind(*value)));
  return nullptr;
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const Json* value = Typed(
      name, [](const Json& v) { return v.is_boolean(); }, "true or false");
  return value == nullptr ? std::nullopt : std::optional<bool>(value->get<bool>());
}

std::optional<int64_t> FieldReader::Integer(std::string_view name, int64_t least, int64_t most) {
  const Json* value = Typed(
      name, [](const Json& v) { return v.is_number(); }, "a whole number");
  if (value == nullptr) return std::nullopt;
  // Clients that know only doubles send 5.0.
  const double real = value->get<double>();
  const bool whole = value->is_number_integer() || (std::isfinite(real) && real == std::floor(real));
  if (!whole || real < static_cast<double>(least) || real > static_cast<double>(most)) {
    Fail(name, fmt::format("is {}; it must be a whole number from {} to {}", value->dump(), least, most));
    return std::nullopt;
  }
  return value->is_number_integer() ? value->get<int64_t>() : static_cast<int64_t>(real);
}

std::optional<double> FieldReader::Number(std::string_view name, double least, double most) {
  const Json* value = Typed(
      name, [](const Json& v) { return v.is_number(); }, "a number");
  if (value == nullptr) return std::nullopt;
  const double number = value->get<double>();
  if (number >= least && number <= most) return number;
  Fail(name, fmt::format("is {}; it must be from {} to {}", value->dump(), least, most));
  return std::nullopt;
}

std::optional<std::string> FieldReader::String(std::string_view name) {
  const Json* value = Typed(
      name, [](const Json& v) { return v.is_string(); }, "a string");
  return value == nullptr ? std::nullopt : std::optional<std::string>(value->get<std::string>());
}

std::optional<std::string> FieldReader::Choice(std::string_view name, std::initializer_list<std::string_view> choices) {
  std::optional<std::string> value = String(name);
  if (!value) return value;
  std::string list;
  for (const std::string_view choice : choices) {
    if (*value == choice) return value;
    list += (list.empty() ? "" : ", ") + std::string(choice);
  }
  Fail(name, fmt::format("is '{}'; it must be one of {}", *value, list));
  return std::nullopt;
}

const Json* FieldReader::Object(std::string_view name) {
  return Typed(
      name, [](const Json& v) { return v.is_object(); }, "an object");
}

const Json* FieldReader::Array(std::string_view name) {
  return Typed(
      name, [](const Json& v) { return v.is_array(); }, "an array");
}

const Json* FieldReader::Any(std::string_view name) { return Find(name); }

void FieldReader::Accept(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void FieldReader::Refuse(std::string_view name, const Json& harmless, std::string_view why) {
  const Json* value = Find(name);
  if (value != nullptr && *value != harmless) Fail(name, std::string(why));
}

void FieldReader::Fail(std::string_view name, std::string message) {
  Fail(FieldError(PathOf(name), std::move(message)));
}

void FieldReader::Fail(ApiError error) {
  if (ok()) error_ = std::move(error);
}

void FieldReader::RejectUnknown() {
  if (!ok()) return;
  for (const auto& [key, value] : object_.items()) {
    if (known_.contains(key)) continue;
    Fail(key, "this field is not known here; leave it out");
    return;
  }
}

}  // namespace bellhop::server
