// Whole files, in and out. Errors name the path. Model files go through MappedFile instead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace bellhop::sys {

// The whole file (pipes and devices too, to their end). kInvalidArgument when it is longer than `max_bytes`.
Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes);
Result<std::string> ReadStdin(uint64_t max_bytes);

// Replaces `path` in one step: readers see the old content or the new, never a part, also after a crash. The old file's
// permissions are kept and a symbolic link is followed. A device or pipe is written to directly. On failure nothing is
// left behind.
Status WriteFileAtomic(const std::string& path, std::string_view content);

}  // namespace bellhop::sys
