// Devices, streams, graphs and memory on the three kinds of machine: a build without CUDA, one with CUDA on a machine
// without a GPU, and a GPU.
#include <gtest/gtest.h>

#include <cstring>

#include "cuda/device_info.h"
#include "cuda/memory.h"
#include "cuda/nvtx.h"
#include "cuda/stream.h"

namespace bellhop::cuda {
namespace {

class ResourcesTest : public testing::Test {
 protected:
  // Null, after checking that the error is the right one, where there is no GPU.
  std::unique_ptr<Device> Open() {
    auto device = Device::Open(DeviceId(0), &ledger_);
    if (device.ok()) return std::move(*device);
    EXPECT_EQ(device.status().code(), BuiltWithCuda() ? StatusCode::kNotFound : StatusCode::kUnsupported)
        << device.status().ToString();
    EXPECT_NE(device.status().message().find("--device cpu"), std::string::npos);
    return nullptr;
  }
  MemoryLedger ledger_;
};

TEST_F(ResourcesTest, RangesNestAnywhere) {
  const NvtxRange outer("outer", 10);
  const NvtxRange inner("inner");
}

TEST_F(ResourcesTest, OnlyDevicesThatExistOpen) {
  EXPECT_FALSE(Device::Open(DeviceId(-1), &ledger_).ok());
  EXPECT_FALSE(Device::Open(DeviceId(1000), &ledger_).ok());
  const auto device = Open();
  if (device == nullptr) return;
  EXPECT_EQ(device->id(), DeviceId(0));
  EXPECT_TRUE(device->MakeCurrent().ok());
}

TEST_F(ResourcesTest, MemoryIsChargedWhileItLives) {
  const auto device = Open();
  if (device == nullptr) return;
  {
    auto buffer = DeviceBuffer::Create(device.get(), 1 << 20, MemoryTag::kKvCache);
    ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
    auto pinned = PinnedBuffer::Create(device.get(), 4096, MemoryTag::kDoorbell);
    ASSERT_TRUE(pinned.ok()) << pinned.status().ToString();
    const DeviceBuffer moved = std::move(*buffer);
    EXPECT_EQ(moved.as<float>().size(), size_t{1} << 18);
    EXPECT_EQ(ledger_.bytes(DeviceId(0), MemoryKind::kDevice, MemoryTag::kKvCache), uint64_t{1} << 20);
    EXPECT_EQ(ledger_.bytes(DeviceId(0), MemoryKind::kPinned, MemoryTag::kDoorbell), 4096u);
    EXPECT_EQ(pinned->bytes()[4095], std::byte{0});
    const auto empty = DeviceBuffer::Create(device.get(), 0, MemoryTag::kOther);
    ASSERT_TRUE(empty.ok());
    EXPECT_EQ(empty->bytes().data(), nullptr);
  }
  EXPECT_TRUE(ledger_.lines().empty());
  const auto refused = DeviceBuffer::Create(device.get(), uint64_t{1} << 50, MemoryTag::kExpertWeights);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.status().message().find("expert weights"), std::string::npos) << refused.status().ToString();
  EXPECT_TRUE(device->poison().status().ok());  // not an error of the device
}

TEST_F(ResourcesTest, CapturedCopiesReplay) {
  const auto device = Open();
  if (device == nullptr) return;
  const auto stream = Stream::Create(device.get());
  ASSERT_TRUE(stream.ok());
  const auto from = PinnedBuffer::Create(device.get(), 4096, MemoryTag::kStaging);
  const auto to = PinnedBuffer::Create(device.get(), 4096, MemoryTag::kStaging);
  const auto middle = DeviceBuffer::Create(device.get(), 4096, MemoryTag::kWorkspace);
  ASSERT_TRUE(from.ok() && to.ok() && middle.ok());
  const auto graph = Graph::Capture(*stream, [&]() -> Status {
    BELLHOP_TRY(FillZero(middle->bytes(), *stream));
    BELLHOP_TRY(CopyToDevice(middle->bytes(), from->bytes(), *stream));
    return CopyToHost(to->bytes(), middle->bytes(), *stream);
  });
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_EQ(*graph->NodeCount(), 3u);
  const auto exec = GraphExec::Create(*graph, *stream);
  ASSERT_TRUE(exec.ok()) << exec.status().ToString();
  const auto done = Event::Create(device.get());
  ASSERT_TRUE(done.ok());
  for (int value = 1; value < 4; ++value) {
    std::memset(from->bytes().data(), value, 4096);
    ASSERT_TRUE(exec->Launch(*stream).ok());
    ASSERT_TRUE(done->Record(*stream).ok());
    ASSERT_TRUE(done->Synchronize().ok());
    EXPECT_TRUE(*done->IsDone());
    EXPECT_EQ(to->bytes()[4095], static_cast<std::byte>(value));
  }
  // A failed capture leaves a stream that works.
  EXPECT_EQ(Graph::Capture(*stream, [] { return Internal("stop"); }).status().message(), "stop");
  EXPECT_FALSE(CopyToDevice(middle->bytes(), from->bytes().subspan(1), *stream).ok());
  EXPECT_TRUE(FillZero(middle->bytes(), *stream).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
}

TEST_F(ResourcesTest, APoisonedDeviceRefusesCalls) {
  const auto device = Open();
  if (device == nullptr) return;
  const auto stream = Stream::Create(device.get());
  ASSERT_TRUE(stream.ok());
  (void)device->poison().Set(CudaError("lost"));
  EXPECT_EQ(stream->Synchronize().message(), "lost");
  EXPECT_EQ(DeviceBuffer::Create(device.get(), 16, MemoryTag::kOther).status().message(), "lost");
  EXPECT_EQ(Event::Create(device.get()).status().message(), "lost");
  EXPECT_EQ(Graph::Capture(*stream, [] { return Status(); }).status().message(), "lost");
}

}  // namespace
}  // namespace bellhop::cuda
