// What the kernels for Hopper believe of its instructions, one thing at a time: where registers and descriptors look
// for numbers, and that copies which arrive at a barrier are there. On other devices there is nothing to test.
#include <string>

#include "kernels/cuda/gpu_rig_for_test.h"
#include "kernels/cuda/prompt_step.h"
#include "kernels/cuda/wgmma_probe_for_test.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

constexpr int kRows = 64, kDepth = 16, kColumns = 64;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> rounded;
  for (const float v : values) rounded.push_back(quant::F32ToBf16(v));
  return rounded;
}

// Whole numbers that bf16 holds, so that products are exact in any order.
std::vector<float> SmallNumbers(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(static_cast<int>(random() % 31) - 15));
  return values;
}

struct ProbeCase {
  int n = 16, first_row = 0, columns = 0;
  bool adds = false, copies = false;
};

class WgmmaTest : public GpuTest {
 protected:
  bool Hopper() {
    if (IsSkipped()) return false;
    PromptDevice device;
    EXPECT_EQ(ChoosePromptMath(&device), cudaSuccess);
    return device.math == PromptMath::kWgmma;
  }

  // a: [64][16], b: [rows][64].
  void Check(const ProbeCase& c, const std::vector<float>& a, const std::vector<float>& b) {
    SCOPED_TRACE(testing::Message() << "n " << c.n << ", rows from " << c.first_row << ", columns from "
                                    << c.columns * kDepth << (c.adds ? ", adds" : "") << (c.copies ? ", copies" : ""));
    const auto before = SmallNumbers(kRows * c.n, 9);
    WgmmaProbe probe;
    probe.a = rig().Upload(ToBf16(a));
    probe.b = rig().Upload(ToBf16(b));
    probe.d = c.adds ? rig().Upload(before) : rig().Poisoned<float>(Size(kRows * c.n));
    probe.n = c.n;
    probe.first_row = c.first_row;
    probe.columns = c.columns;
    probe.adds = c.adds;
    probe.copies = c.copies;
    ASSERT_EQ(LaunchWgmmaProbe(probe, rig().queue().stream), cudaSuccess);
    const auto got = rig().Download(probe.d, Size(kRows * c.n));
    int wrong = 0;
    std::string first;
    for (int m = 0; m < kRows; ++m) {
      for (int n = 0; n < c.n; ++n) {
        float want = c.adds ? before[Size(m * c.n + n)] : 0;
        for (int k = 0; k < kDepth; ++k) {
          want += a[Size(m * kDepth + k)] * b[Size((c.first_row + n) * kColumns + c.columns * kDepth + k)];
        }
        const float have = got[Size(m * c.n + n)];
        if (have == want) continue;
        if (wrong++ == 0) {
          first = "row " + std::to_string(m) + ", column " + std::to_string(n) + ": " + std::to_string(have) +
                  ", not " + std::to_string(want);
        }
      }
    }
    EXPECT_EQ(wrong, 0) << first;
    rig().FreeMemory();
  }

  std::vector<float> Rows(const ProbeCase& c) { return SmallNumbers((c.first_row + c.n) * kColumns, 3); }
};

TEST_F(WgmmaTest, RegistersHoldRowsAndSumsAsThoseOfM16n8k16) {
  if (!Hopper()) return;
  // Row n of b has a one in column n: sums are the numbers of a.
  std::vector<float> b(16 * kColumns);
  for (int n = 0; n < 16; ++n) b[Size(n * kColumns + n)] = 1;
  Check({}, SmallNumbers(kRows * kDepth, 1), b);
}

TEST_F(WgmmaTest, DescriptorsFindPermutedRows) {
  if (!Hopper()) return;
  // Row m of a has a one in column m % 16: sums are the numbers of b.
  std::vector<float> a(kRows * kDepth);
  for (int m = 0; m < kRows; ++m) a[Size(m * kDepth + m % kDepth)] = 1;
  for (const int n : {16, 32, 40, 48, 56, 64}) {
    for (const int columns : {0, 1, 2, 3}) {
      for (const int first_row : {0, 8, 48, 64}) {
        const ProbeCase c{n, first_row, columns};
        Check(c, a, Rows(c));
      }
    }
  }
}

TEST_F(WgmmaTest, ProductsAreSumsOrAreAdded) {
  if (!Hopper()) return;
  for (const int n : {16, 32, 40, 48, 56, 64}) {
    for (const bool adds : {false, true}) {
      const ProbeCase c{n, 0, 1, adds};
      Check(c, SmallNumbers(kRows * kDepth, 5), Rows(c));
    }
  }
}

TEST_F(WgmmaTest, CopiesThatArriveAreSeenByTensorCores) {
  if (!Hopper()) return;
  for (int repeat = 0; repeat < 50 && !HasFailure(); ++repeat) {
    const ProbeCase c{64, 64, repeat % 4, false, true};
    Check(c, SmallNumbers(kRows * kDepth, 7), Rows(c));
  }
}

TEST_F(WgmmaTest, BulkCopiesCountTheirBytes) {
  if (!Hopper()) return;
  for (const int pieces : {1, 8}) {
    for (const int bytes : {16, 1088, 1152, 3360}) {
      std::vector<uint8_t> data(Size(bytes * pieces));
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 37 + i / 251);
      BulkProbe probe{rig().Upload(data), rig().PoisonedBytes(data.size()), bytes * pieces, pieces};
      ASSERT_EQ(LaunchBulkProbe(probe, rig().queue().stream), cudaSuccess);
      EXPECT_EQ(rig().Download(probe.to, data.size()), data) << pieces << " pieces of " << bytes;
      rig().FreeMemory();
    }
  }
}

}  // namespace
}  // namespace bellhop::kernels
