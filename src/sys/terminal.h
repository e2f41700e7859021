// What kind of thing a stream is connected to.
#pragma once

namespace bellhop::sys {

enum class StandardStream { kIn = 0, kOut = 1, kErr = 2 };

bool IsTerminal(StandardStream stream);

// Width of the terminal in characters; 80 when the stream is no terminal or does not say.
int TerminalColumns(StandardStream stream);

// Waits until standard input has something to read or is at its end, at most `timeout_ms`; false when that time is over
// or a signal came.
bool WaitForInput(int timeout_ms);

}  // namespace bellhop::sys
