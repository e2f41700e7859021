#include "sys/signals.h"

#include <gtest/gtest.h>

namespace bellhop::sys {
namespace {

TEST(InterruptScopeTest, FirstSignalSetsTheFlagAndRestoresTheDefault) {
  InterruptScope scope({SIGUSR1});
  EXPECT_FALSE(scope.interrupted());
  raise(SIGUSR1);
  EXPECT_TRUE(scope.interrupted());
  EXPECT_TRUE(scope.flag().load());
  struct sigaction now {};
  sigaction(SIGUSR1, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(InterruptScopeTest, RearmListensAgain) {
  InterruptScope scope({SIGUSR1});
  for (int i = 0; i < 3; ++i) {
    raise(SIGUSR1);
    EXPECT_TRUE(scope.interrupted());
    scope.Rearm();
    EXPECT_FALSE(scope.interrupted());
  }
}

TEST(InterruptScopeTest, SecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        InterruptScope scope;
        raise(SIGINT);
        raise(SIGINT);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(InterruptScopeTest, RestoresEarlierHandlers) {
  struct sigaction before {};
  signal(SIGUSR1, SIG_IGN);
  {
    InterruptScope scope({SIGUSR1, SIGUSR2});
    raise(SIGUSR1);
  }
  sigaction(SIGUSR1, nullptr, &before);
  EXPECT_EQ(before.sa_handler, SIG_IGN);
  signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace bellhop::sys
