#include "sys/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace bellhop::sys {
namespace {

struct Pair {
  Pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0); }
  int fds[2] = {-1, -1};
};

TEST(ConnectionTest, ReadsWhatComesAndTheEnd) {
  Pair pair;
  Connection mine(pair.fds[0]);
  auto other = std::make_unique<Connection>(pair.fds[1]);
  char buffer[8];
  EXPECT_EQ(mine.Read(buffer, sizeof(buffer), 1), -1) << "nothing came";
  EXPECT_EQ(other->Write("abc", 3, 1000), 3);
  EXPECT_TRUE(mine.WaitReadable(1000));
  EXPECT_EQ(mine.Read(buffer, sizeof(buffer), 1000), 3);
  EXPECT_EQ(std::string(buffer, 3), "abc");
  EXPECT_FALSE(mine.peer_gone());
  EXPECT_EQ(other->Write("rest", 4, 1000), 4);
  other.reset();
  EXPECT_TRUE(mine.peer_gone()) << "unread bytes hide the end";
  EXPECT_EQ(mine.Read(buffer, sizeof(buffer), 1000), 4);
  EXPECT_EQ(mine.Read(buffer, sizeof(buffer), 1000), 0);
  EXPECT_EQ(mine.Write("x", 1, 1000), -1) << "and no signal";
}

TEST(ConnectionTest, WritesAllOrGivesUp) {
  Pair pair;
  Connection mine(pair.fds[0]), other(pair.fds[1]);
  const std::string large(8 << 20, 'x');
  EXPECT_EQ(mine.Write(large.data(), large.size(), 20), -1) << "nobody reads";
  size_t received = 0;
  std::thread reader([&] {
    std::string buffer(1 << 16, ' ');
    for (int64_t got; (got = other.Read(buffer.data(), buffer.size(), 200)) > 0;) received += static_cast<size_t>(got);
  });
  EXPECT_EQ(mine.Write(large.data(), large.size(), 5000), static_cast<int64_t>(large.size()));
  reader.join();
  EXPECT_GE(received, large.size());
}

}  // namespace
}  // namespace bellhop::sys
