// Memory between two pages that nothing may touch: a read or write beside it ends the test, also one that sanitizers do
// not see, such as a vector store whose masked lanes lie outside.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <span>

#include <gtest/gtest.h>

namespace bellhop::kernels {

class GuardedBuffer {
 public:
  enum class Touches { kPageBefore, kPageAfter };

  GuardedBuffer(std::span<const std::byte> content, Touches touches) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (content.size() + page - 1) / page * page;
    bytes_ = inside + 2 * page;
    void* mapping = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapping, MAP_FAILED);
    mapping_ = static_cast<std::byte*>(mapping);
    EXPECT_EQ(mprotect(mapping_ + page, inside, PROT_READ | PROT_WRITE), 0);
    data_ = mapping_ + page + (touches == Touches::kPageAfter ? inside - content.size() : 0);
    std::memcpy(data_, content.data(), content.size());
  }
  ~GuardedBuffer() { munmap(mapping_, bytes_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  std::byte* mapping_;
  std::byte* data_;
  size_t bytes_;
};

}  // namespace bellhop::kernels
