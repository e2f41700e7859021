// errno as a Status. Every message reads "PATH: cannot VERB: REASON; REMEDY".
#pragma once

#include <string_view>

#include "base/status.h"

namespace bellhop::sys {

// kNotFound for a path that does not exist, kOutOfMemory for ENOMEM, kIo otherwise. `error` is an errno value.
Status OsError(int error, std::string_view path, std::string_view verb);

}  // namespace bellhop::sys
