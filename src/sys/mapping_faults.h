// What a program says when a mapped file can no longer be read: the kernel answers a read of a page that is gone (the
// file became shorter) or that the disk cannot deliver with SIGBUS, which no return code can carry.
#pragma once

namespace bellhop::sys {

// For programs alone, as a handler is the whole process's: from now on such a read writes one line to standard error,
// PREFIX with the file, the reason and the remedy, and ends the process with `exit_code` through _exit. Any other
// SIGBUS acts as before. `prefix` must live for ever. Repeated calls change prefix and code.
void ExplainMappingFaults(const char* prefix, int exit_code);

}  // namespace bellhop::sys
