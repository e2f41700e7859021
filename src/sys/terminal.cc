#include "sys/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace bellhop::sys {

bool IsTerminal(StandardStream stream) { return isatty(static_cast<int>(stream)) == 1; }

int TerminalColumns(StandardStream stream) {
  winsize size{};
  if (ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool WaitForInput(int timeout_ms) {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, timeout_ms) > 0;
}

}  // namespace bellhop::sys
