// Python's two ways to format: `format % args` and `format.format(*args, **kwargs)`.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja_builtins.h"
#include "text/jinja_runtime.h"

namespace bellhop::text {

Result<std::string> PrintfFormat(JinjaRuntime& rt, std::string_view format, const JinjaValue& args);
Result<std::string> BraceFormat(JinjaRuntime& rt, std::string_view format, const JinjaArgs& args);

}  // namespace bellhop::text
