#include "frontends/server/call_output.h"

#include <thread>

#include <gtest/gtest.h>

namespace bellhop::server {
namespace {

constexpr std::chrono::milliseconds kLong(20'000), kShort(1);

TEST(CallOutputTest, EventsComeInOrderAndEnd) {
  auto output = std::make_shared<CallOutput>(2, 1 << 20);
  const auto sinks = output->MakeSinks();
  std::thread engine([&] {
    EXPECT_TRUE(sinks[0]->OnDelta({"a", {}}));
    EXPECT_TRUE(sinks[1]->OnDelta({"b", {}}));
    sinks[1]->OnEnd({});
    EXPECT_TRUE(sinks[0]->OnDelta({"c", {}}));
    sinks[0]->OnEnd({});
  });
  std::string seen;
  std::vector<CallOutput::Event> events;
  while (!output->finished()) {
    ASSERT_TRUE(output->Take(&events, kLong));
    for (const CallOutput::Event& event : events) {
      const auto* delta = std::get_if<engine::SequenceDelta>(&event.what);
      seen += std::to_string(event.choice) + (delta != nullptr ? delta->text : "end") + " ";
    }
  }
  engine.join();
  EXPECT_EQ(seen, "0a 1b 1end 0c 0end ");
  EXPECT_FALSE(output->Take(&events, kShort));
}

TEST(CallOutputTest, AReaderThatStallsIsGivenUp) {
  auto output = std::make_shared<CallOutput>(1, 4096);
  const auto sinks = output->MakeSinks();
  int taken = 0;
  while (taken < 1000 && sinks[0]->OnDelta({std::string(100, 'x'), {}})) ++taken;
  EXPECT_GT(taken, 1);
  EXPECT_LT(taken, 40);
  EXPECT_TRUE(output->overflowed());
}

}  // namespace
}  // namespace bellhop::server
