#include "sys/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace bellhop::sys {
namespace {

TEST(AlignedBufferTest, SizesAlignmentAndTag) {
  for (const uint64_t bytes : {1ull, 63ull, 64ull, 65ull, 100'000ull, (4ull << 20) + 1}) {
    Result<AlignedBuffer> buffer = AlignedBuffer::Create(bytes, MemoryTag::kKvCache);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(buffer->bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->bytes().data()) % AlignedBuffer::kAlignment, 0u);
    EXPECT_EQ(buffer->tag(), MemoryTag::kKvCache);
    std::memset(buffer->bytes().data(), 0x5a, bytes);
    EXPECT_EQ(buffer->bytes()[bytes - 1], std::byte{0x5a});
  }
}

TEST(AlignedBufferTest, EmptyAndTyped) {
  Result<AlignedBuffer> empty = AlignedBuffer::Create(0, MemoryTag::kOther);
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->bytes().empty());
  Result<AlignedBuffer> buffer = AlignedBuffer::Create(15, MemoryTag::kOther);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->as<float>().size(), 3u);
}

TEST(AlignedBufferTest, MovesOwnership) {
  AlignedBuffer a = *AlignedBuffer::Create(64, MemoryTag::kWorkspace);
  const std::byte* data = a.bytes().data();
  AlignedBuffer b = std::move(a);
  EXPECT_EQ(b.bytes().data(), data);
  EXPECT_TRUE(a.bytes().empty());  // NOLINT: the moved-from state is part of the contract
  AlignedBuffer c = *AlignedBuffer::Create(128, MemoryTag::kStaging);
  c = std::move(b);
  EXPECT_EQ(c.bytes().data(), data);
  EXPECT_EQ(c.tag(), MemoryTag::kWorkspace);
}

TEST(AlignedBufferTest, ImpossibleSizesAreErrors) {
  for (const uint64_t bytes : {uint64_t{1} << 50, UINT64_MAX - 63, UINT64_MAX}) {
    Result<AlignedBuffer> buffer = AlignedBuffer::Create(bytes, MemoryTag::kExpertWeights);
    ASSERT_FALSE(buffer.ok()) << bytes;
    EXPECT_EQ(buffer.status().code(), StatusCode::kOutOfMemory);
    EXPECT_NE(buffer.status().message().find("expert weights"), std::string::npos);
  }
}

}  // namespace
}  // namespace bellhop::sys
