// The measuring kernels where there is a GPU; elsewhere there is no device to make them on (resources_test.cc).
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "cuda/doorbell_probe.h"
#include "cuda/doorbell_sums.h"
#include "cuda/read_probe.h"

namespace bellhop::cuda {
namespace {

TEST(ProbesTest, MemoryIsRead) {
  MemoryLedger ledger;
  const auto device = Device::Open(DeviceId(0), &ledger);
  if (!device.ok()) return;
  auto probe = ReadProbe::Create(device->get());
  ASSERT_TRUE(probe.ok()) << probe.status().ToString();
  const auto buffer = DeviceBuffer::Create(device->get(), 64 << 20, MemoryTag::kOther);
  const auto pinned = PinnedBuffer::Create(device->get(), 16 << 20, MemoryTag::kOther);
  ASSERT_TRUE(buffer.ok() && pinned.ok());
  const auto near = probe->Measure(DeviceSpan<const std::byte>(buffer->bytes()), 3);
  const auto far = probe->Measure(PinnedSpan<const std::byte>(pinned->bytes()), 3);
  ASSERT_TRUE(near.ok()) << near.status().ToString();
  ASSERT_TRUE(far.ok()) << far.status().ToString();
  EXPECT_GT(*near, *far);
  EXPECT_GT(*far, 0);
  ASSERT_TRUE(probe->Start(pinned->bytes(), 6 << 20, 4).ok());
  while (!*probe->Started()) std::this_thread::yield();
  const auto ends = probe->Finish();
  ASSERT_TRUE(ends.ok());
  ASSERT_EQ(ends->size(), 4u);
  EXPECT_GT(ends->front(), 0);
  EXPECT_GT(ends->back(), ends->front());
  EXPECT_FALSE(probe->Measure(PinnedSpan<const std::byte>(pinned->bytes().subspan(1)), 3).ok());
  EXPECT_FALSE(probe->Measure(PinnedSpan<const std::byte>(pinned->bytes()), 0).ok());
}

TEST(ProbesTest, RingsAreAnsweredAndCounted) {
  MemoryLedger ledger;
  const auto device = Device::Open(DeviceId(0), &ledger);
  if (!device.ok()) return;
  const auto probe = DoorbellProbe::Create(device->get(), 10, 256);
  ASSERT_TRUE(probe.ok()) << probe.status().ToString();
  const DoorbellChannel channel = (*probe)->channel();
  DoorbellHeader* const header = channel.header;
  ASSERT_TRUE((*probe)->Replay().ok());
  EXPECT_EQ(header->req_seq.value, 0u);
  std::atomic<bool> stop{false};
  const std::vector<float> zeros(256);
  std::thread answers([&] {
    DoorbellSums sums(channel);
    for (uint64_t last = 0; !stop.load();) {
      const uint64_t seq = LoadAcquireSystem(header->req_seq);
      if (seq == last) continue;
      PublishSums(zeros.data(), channel.hidden, sums.Of(seq, 1).Row(0));
      sums.Answered(last = seq);
    }
  });
  const bool set = (*probe)->SetRinging(true).ok();
  const auto first = (*probe)->Replay(), second = (*probe)->Replay();
  stop.store(true);
  answers.join();
  ASSERT_TRUE(set && first.ok() && second.ok());
  EXPECT_GT(*second, 0);
  EXPECT_EQ(LoadAcquireSystem(header->req_seq), 20u);
  EXPECT_TRUE(DoorbellDeviceStatus((*probe)->channel()).ok());
}

}  // namespace
}  // namespace bellhop::cuda
