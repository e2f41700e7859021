#include "sys/hangup_watch.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "sys/connection.h"

namespace bellhop::sys {
namespace {

// Two ends of a connection.
struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    mine = std::make_unique<Connection>(fds[0]);
    peer = std::make_unique<Connection>(fds[1]);
  }
  std::unique_ptr<Connection> mine, peer;
};

// A call that can be waited for.
struct Gone {
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  bool Within(std::chrono::milliseconds limit) { return future.wait_for(limit) == std::future_status::ready; }
};
constexpr std::chrono::seconds kLong{10};

TEST(HangupWatchTest, SaysWhenThePeerCloses) {
  auto watch = *HangupWatch::Start();
  Ends ends;
  Gone gone;
  const auto entry = *watch->Add(ends.mine->fd(), [&] { gone.promise.set_value(); });
  EXPECT_EQ(ends.peer->Write("unread", 6, 1000), 6);
  EXPECT_FALSE(gone.Within(std::chrono::milliseconds(30))) << "bytes are no end";
  ends.peer.reset();
  EXPECT_TRUE(gone.Within(kLong)) << "unread bytes hide the end";
}

TEST(HangupWatchTest, SaysSoOfAPeerThatHadGone) {
  auto watch = *HangupWatch::Start();
  Ends ends;
  ends.peer.reset();
  Gone gone;
  const auto entry = *watch->Add(ends.mine->fd(), [&] { gone.promise.set_value(); });
  EXPECT_TRUE(gone.Within(kLong));
}

TEST(HangupWatchTest, ARemovedEntryIsNotCalledAndItsSocketMayComeAgain) {
  auto watch = *HangupWatch::Start();
  Ends ends;
  std::atomic<int> calls{0};
  {
    const auto entry = *watch->Add(ends.mine->fd(), [&] { ++calls; });
  }
  ends.peer.reset();
  Gone gone;
  const auto entry = *watch->Add(ends.mine->fd(), [&] { gone.promise.set_value(); });
  EXPECT_TRUE(gone.Within(kLong));
  EXPECT_EQ(calls.load(), 0);
}

TEST(HangupWatchTest, OneEntryForASocket) {
  auto watch = *HangupWatch::Start();
  Ends ends;
  const auto entry = *watch->Add(ends.mine->fd(), [] {});
  EXPECT_FALSE(watch->Add(ends.mine->fd(), [] {}).ok());
}

// The peers close while the entries are taken away: each call runs at most once and none after its entry's end.
TEST(HangupWatchTest, EntriesEndWhilePeersClose) {
  auto watch = *HangupWatch::Start();
  for (int round = 0; round < 20; ++round) {
    std::vector<Ends> ends(16);
    std::vector<std::atomic<int>> calls(ends.size());
    std::vector<HangupWatch::Entry> entries;
    for (size_t i = 0; i < ends.size(); ++i) {
      entries.push_back(*watch->Add(ends[i].mine->fd(), [&calls, i] { ++calls[i]; }));
    }
    std::thread closer([&] {
      for (Ends& e : ends) e.peer.reset();
    });
    entries.clear();
    std::vector<int> at_end(calls.begin(), calls.end());
    closer.join();
    for (size_t i = 0; i < ends.size(); ++i) {
      EXPECT_LE(at_end[i], 1);
      EXPECT_EQ(calls[i].load(), at_end[i]);
    }
  }
}

}  // namespace
}  // namespace bellhop::sys
