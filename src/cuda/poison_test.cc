#include "cuda/poison.h"

#include <gtest/gtest.h>

#include <thread>

namespace bellhop::cuda {
namespace {

TEST(PoisonTest, KeepsTheFirstError) {
  Poison poison;
  EXPECT_TRUE(poison.Set(Status()).ok());
  EXPECT_FALSE(poison.poisoned());
  EXPECT_TRUE(poison.status().ok());
  EXPECT_EQ(poison.Set(CudaError("first")).message(), "first");
  EXPECT_EQ(poison.Set(Internal("second")).message(), "second");
  EXPECT_TRUE(poison.Set(Status()).ok());
  EXPECT_TRUE(poison.poisoned());
  EXPECT_EQ(poison.status().ToString(), CudaError("first").ToString());
}

TEST(PoisonTest, OneErrorWinsAmongThreads) {
  Poison poison;
  std::thread other([&] { (void)poison.Set(CudaError("b")); });
  (void)poison.Set(CudaError("a"));
  const std::string seen(poison.status().message());
  other.join();
  EXPECT_TRUE(seen == "a" || seen == "b");
  EXPECT_EQ(poison.status().message(), seen);
}

}  // namespace
}  // namespace bellhop::cuda
