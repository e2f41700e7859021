#include "sys/bandwidth.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "sys/aligned_buffer.h"
#include "sys/thread_affinity.h"

namespace bellhop::sys {
namespace {

std::unique_ptr<WorkerPool> MakePool(int workers) {
  WorkerPool::Options options;
  options.cpus.assign(static_cast<size_t>(workers), ReadThreadAffinity()->front());
  return std::move(WorkerPool::Create(options)).value();
}

// Speeds are the machine's business; that every byte was read is checked inside (a wrong sum is an error).
TEST(BandwidthTest, ReadsTheWholeBuffer) {
  for (int isa = 0; isa <= static_cast<int>(DetectCpu().isa); ++isa) {
    for (const int workers : {1, 3}) {
      auto pool = MakePool(workers);
      for (const uint64_t bytes : {uint64_t{64} * 3, (uint64_t{1} << 20) + 17}) {
        const Result<ReadBandwidth> result = MeasureReadBandwidth(*pool, bytes, 4, static_cast<Isa>(isa));
        ASSERT_TRUE(result.ok()) << result.status().ToString();
        EXPECT_GT(result->min_gb_per_s, 0);
        EXPECT_LE(result->min_gb_per_s, result->gb_per_s);
        EXPECT_LE(result->gb_per_s, result->max_gb_per_s);
        EXPECT_EQ(result->buffer_bytes, bytes);
        EXPECT_EQ(result->passes, 4);
      }
    }
  }
}

TEST(BandwidthTest, ReadsMemoryOfTheCaller) {
  auto pool = MakePool(2);
  const auto buffer = std::move(AlignedBuffer::Create(64 * 1000 + 10, MemoryTag::kOther)).value();
  for (size_t i = 0; i < buffer.size(); ++i) buffer.bytes()[i] = static_cast<std::byte>(i * 7);
  const Result<ReadBandwidth> result = MeasureReadBandwidth(*pool, buffer.bytes(), 3);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_GT(result->min_gb_per_s, 0);
  EXPECT_LE(result->min_gb_per_s, result->gb_per_s);
  EXPECT_LE(result->gb_per_s, result->max_gb_per_s);
  EXPECT_EQ(result->buffer_bytes, buffer.size());

  const HostSpan<const std::byte> crooked = buffer.bytes().subspan(8);
  EXPECT_EQ(MeasureReadBandwidth(*pool, crooked, 1).status().code(), StatusCode::kInvalidArgument);
  const HostSpan<const std::byte> short_of_workers = buffer.bytes().subspan(0, 64);
  EXPECT_EQ(MeasureReadBandwidth(*pool, short_of_workers, 1).status().code(), StatusCode::kInvalidArgument);
}

TEST(BandwidthTest, PointsOfAReadThatGoesOn) {
  auto pool = MakePool(2);
  const auto buffer = std::move(AlignedBuffer::Create(64 * 1000 + 10, MemoryTag::kOther)).value();
  FillForReading(*pool, buffer.bytes());
  for (const int64_t ns : {int64_t{0}, int64_t{5'000'000}}) {
    const auto points = ReadMemoryFor(*pool, buffer.bytes(), ns);
    ASSERT_TRUE(points.ok()) << points.status().ToString();
    ASSERT_GE(points->size(), 2u);
    for (size_t i = 1; i < points->size(); ++i) {
      EXPECT_EQ((*points)[i].bytes, i * 64 * 1000);
      EXPECT_GE((*points)[i].ns, (*points)[i - 1].ns);
    }
    EXPECT_GE(points->back().ns - points->front().ns, ns);
    EXPECT_GT(RateWithin(*points, points->front().ns, points->back().ns), 0);
  }
  EXPECT_FALSE(ReadMemoryFor(*pool, HostSpan<const std::byte>(buffer.bytes().subspan(8)), 1).ok());
}

TEST(BandwidthTest, RatesOfPartsOfARead) {
  const std::vector<ReadPoint> points{{100, 0}, {200, 1000}, {200, 1000}, {400, 1500}};
  EXPECT_EQ(RateWithin(points, 100, 200), 10);
  EXPECT_EQ(RateWithin(points, 150, 300), (500 + 250) / 150.0);
  EXPECT_EQ(RateWithin(points, 100, 400), 5);
  EXPECT_EQ(RateWithin(points, 300, 300), 0);
  EXPECT_EQ(RateWithin(points, 300, 200), 0);
}

TEST(BandwidthTest, BufferSizes) {
  EXPECT_EQ(BandwidthBufferBytes(uint64_t{1} << 30, uint64_t{8} << 30), uint64_t{4} << 30);
  EXPECT_EQ(BandwidthBufferBytes(0, uint64_t{8} << 30), uint64_t{256} << 20);
  Topology topology;
  topology.memory_available_bytes = uint64_t{512} << 20;
  EXPECT_EQ(BandwidthBufferBytes(topology, uint64_t{4} << 30), uint64_t{128} << 20);
  EXPECT_EQ(BandwidthBufferBytes(topology, 1000), 1000u);
}

TEST(BandwidthTest, BadRequests) {
  auto pool = MakePool(2);
  EXPECT_EQ(MeasureReadBandwidth(*pool, 64, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureReadBandwidth(*pool, 4096, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureReadBandwidth(*pool, uint64_t{1} << 50, 1).status().code(), StatusCode::kOutOfMemory);
}

TEST(BandwidthTest, BufferSize) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  EXPECT_EQ(BandwidthBufferBytes(0, 1024 * kMiB), 256 * kMiB);
  EXPECT_EQ(BandwidthBufferBytes(100 * kMiB, 1024 * kMiB), 400 * kMiB);
  EXPECT_EQ(BandwidthBufferBytes(480 * kMiB, 1024 * kMiB), 1024 * kMiB);
  EXPECT_EQ(BandwidthBufferBytes(UINT64_MAX, 1024 * kMiB), 1024 * kMiB);
}

TEST(BandwidthTest, RoundTripIsMeasured) {
  auto pool = MakePool(2);
  EXPECT_GT(MeasureRoundTripNs(*pool, 3), 0);
  EXPECT_GT(MeasureRoundTripNs(*pool, 0), 0);
}

}  // namespace
}  // namespace bellhop::sys
