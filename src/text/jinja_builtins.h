// The tables of filters, tests, methods and global functions. An entry names its parameters, so that positional and
// keyword arguments are bound and checked in one place before its function runs.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace bellhop::text {

struct JinjaArgs {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

// `self` is the filtered or tested value, a method's object, or missing. `args` has one value per declared parameter,
// kMissing where none was passed, and for a variadic entry the arguments as given.
using JinjaFn = Result<JinjaValue> (*)(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args);

struct JinjaBuiltin {
  std::string_view name;
  JinjaFn fn;
  int required = 0;
  std::array<std::string_view, 6> params = {};  // up to the first empty name
  bool positional_only = false;
  bool variadic = false;
};

const JinjaBuiltin* FindJinjaFilter(std::string_view name);
const JinjaBuiltin* FindJinjaTest(std::string_view name);
const JinjaBuiltin* FindJinjaGlobal(std::string_view name);
// A method of the object's type.
const JinjaBuiltin* FindJinjaMethod(const JinjaValue& object, std::string_view name);

// Binds the arguments and runs the entry.
Result<JinjaValue> CallBuiltin(JinjaRuntime& rt, const JinjaBuiltin& builtin, const JinjaValue& self, JinjaArgs args);

// A string method whose object is markup.
Result<JinjaValue> CallMarkupMethod(JinjaRuntime& rt, const JinjaBuiltin& method, const JinjaValue& self,
                                    JinjaArgs args);

// Attributes and text of macros and loops (in jinja_interpreter.cc, which knows them).
Result<JinjaValue> MacroAttribute(JinjaRuntime& rt, const JinjaValue& macro, std::string_view name);
Result<std::string> DescribeJinjaObject(JinjaRuntime& rt, const JinjaValue& value);

// jinja_json.cc: json.dumps with the options of the tojson filter.
Result<JinjaValue> FilterToJson(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args);
// jinja_strftime.cc: strftime of a UTC time, C locale.
Result<std::string> FormatTime(JinjaRuntime& rt, std::string_view format, int64_t unix_seconds);

}  // namespace bellhop::text
