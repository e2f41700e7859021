// Recognises what people pass in place of a GGUF file, so that the message can say what to do.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/span.h"
#include "base/status.h"

namespace bellhop::formats {

// OK when `bytes` start with the GGUF magic.
Status CheckForeignFile(HostSpan<const std::byte> bytes, std::string_view name);

}  // namespace bellhop::formats
