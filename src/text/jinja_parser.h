// Template source to JinjaTemplate.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "text/jinja_ast.h"

namespace bellhop::text {

// Errors: "<line>: <what>". Unknown filters, tests and tags are found here, and so is nesting too deep to evaluate.
Result<std::unique_ptr<JinjaTemplate>> JinjaParse(std::string_view source);

}  // namespace bellhop::text
