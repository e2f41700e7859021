#include "sys/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace bellhop::sys {
namespace {

// Puts another file in place of standard input while it lives.
class StdinReplaced {
 public:
  explicit StdinReplaced(int fd) : saved_(dup(STDIN_FILENO)) { dup2(fd, STDIN_FILENO); }
  ~StdinReplaced() {
    dup2(saved_, STDIN_FILENO);
    close(saved_);
  }

 private:
  int saved_;
};

TEST(TerminalTest, PipeIsNone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    StdinReplaced replaced(ends[0]);
    EXPECT_FALSE(IsTerminal(StandardStream::kIn));
    EXPECT_EQ(TerminalColumns(StandardStream::kIn), 80);
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(TerminalTest, PseudoTerminalHasAWidth) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0) GTEST_SKIP() << "no pseudo-terminals here";
  ASSERT_EQ(grantpt(master), 0);
  ASSERT_EQ(unlockpt(master), 0);
  const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  ASSERT_GE(slave, 0);
  winsize size{};
  size.ws_col = 123;
  {
    StdinReplaced replaced(slave);
    EXPECT_TRUE(IsTerminal(StandardStream::kIn));
    EXPECT_EQ(TerminalColumns(StandardStream::kIn), 80);  // a width of 0 means unknown
    ASSERT_EQ(ioctl(master, TIOCSWINSZ, &size), 0);
    EXPECT_EQ(TerminalColumns(StandardStream::kIn), 123);
  }
  close(slave);
  close(master);
}

}  // namespace
}  // namespace bellhop::sys
