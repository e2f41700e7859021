// What the files behind jinja_builtins.h share.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja_builtins.h"

namespace bellhop::text {

const JinjaBuiltin* FindStringMethod(std::string_view name);

bool TextIsUpper(std::string_view text);
bool TextIsLower(std::string_view text);

// Filters on sequences; the table in jinja_filters.cc lists them.
#define BELLHOP_JINJA_FILTER(Name) Result<JinjaValue> Name(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args);
BELLHOP_JINJA_FILTER(FilterBatch)
BELLHOP_JINJA_FILTER(FilterDictSort)
BELLHOP_JINJA_FILTER(FilterFirst)
BELLHOP_JINJA_FILTER(FilterGroupBy)
BELLHOP_JINJA_FILTER(FilterItems)
BELLHOP_JINJA_FILTER(FilterJoin)
BELLHOP_JINJA_FILTER(FilterLast)
BELLHOP_JINJA_FILTER(FilterLength)
BELLHOP_JINJA_FILTER(FilterList)
BELLHOP_JINJA_FILTER(FilterMap)
BELLHOP_JINJA_FILTER(FilterMax)
BELLHOP_JINJA_FILTER(FilterMin)
BELLHOP_JINJA_FILTER(FilterReject)
BELLHOP_JINJA_FILTER(FilterRejectAttr)
BELLHOP_JINJA_FILTER(FilterReverse)
BELLHOP_JINJA_FILTER(FilterSelect)
BELLHOP_JINJA_FILTER(FilterSelectAttr)
BELLHOP_JINJA_FILTER(FilterSlice)
BELLHOP_JINJA_FILTER(FilterSort)
BELLHOP_JINJA_FILTER(FilterSum)
BELLHOP_JINJA_FILTER(FilterUnique)
#undef BELLHOP_JINJA_FILTER

}  // namespace bellhop::text
