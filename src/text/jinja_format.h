// Python's two ways to format: `format % args` and `format.format(*args, **kwargs)`. A format that is markup escapes
// what it inserts.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja_builtins.h"
#include "text/jinja_runtime.h"

namespace bellhop::text {

Result<std::string> PrintfFormat(JinjaRuntime& rt, const JinjaString& format, const JinjaValue& args);
Result<std::string> BraceFormat(JinjaRuntime& rt, const JinjaString& format, const JinjaArgs& args);

}  // namespace bellhop::text
