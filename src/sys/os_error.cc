#include "sys/os_error.h"

#include <cerrno>
#include <system_error>

namespace bellhop::sys {

Status OsError(int error, std::string_view path, std::string_view verb) {
  const std::string reason = std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR: return NotFound("{}: cannot {}: {}; check the path", path, verb, reason);
    case ENOMEM:
      return OutOfMemory("{}: cannot {}: {}; free memory, or raise the address-space limit (ulimit -v)", path, verb,
                         reason);
    case EACCES:
    case EPERM:
      return IoError("{}: cannot {}: {}; give this user access to the file and its folders", path, verb, reason);
    case EMFILE:
    case ENFILE: return IoError("{}: cannot {}: {}; raise the open-file limit (ulimit -n)", path, verb, reason);
    case ENOSPC:
    case EDQUOT: return IoError("{}: cannot {}: {}; free disk space", path, verb, reason);
    default: return IoError("{}: cannot {}: {}", path, verb, reason);
  }
}

}  // namespace bellhop::sys
