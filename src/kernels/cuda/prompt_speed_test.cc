// How fast the kernels of prompts are: nothing is held to it, the numbers are printed.
#include <cmath>
#include <functional>
#include <iostream>

#include "kernels/cuda/prompt_attention.h"
#include "kernels/cuda/prompt_rig_for_test.h"
#include "quant/format.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

class PromptSpeedTest : public GpuTest {
 protected:
  // Milliseconds of one run, out of several behind each other.
  double Time(const std::function<cudaError_t()>& launch) {
    constexpr int kRuns = 10;
    cudaEvent_t from, to;
    EXPECT_EQ(cudaEventCreate(&from), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&to), cudaSuccess);
    EXPECT_EQ(launch(), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(from, rig().queue().stream), cudaSuccess);
    for (int i = 0; i < kRuns; ++i) EXPECT_EQ(launch(), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(to, rig().queue().stream), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(to), cudaSuccess);
    float ms = 0;
    EXPECT_EQ(cudaEventElapsedTime(&ms, from, to), cudaSuccess);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return ms / kRuns;
  }
  // What the weights are does not matter to the time.
  DeviceMatrix Matrix(WeightFormat format, int32_t rows, int32_t cols) {
    HostMatrix shape;
    shape.format = format;
    shape.rows = rows;
    shape.cols = cols;
    shape.row_bytes = static_cast<int64_t>(quant::RowBytes(format, static_cast<uint64_t>(cols)).value());
    DeviceMatrix w = Describe(shape, UsualLayout(format));
    w.data = rig().Zeroed<uint8_t>(BytesOf(w));
    return w;
  }
  TermRows Rows(int32_t rows, int32_t cols) {
    return UploadPromptRows(rig(), Normal(Size(int64_t{rows} * cols), 1, 1), rows, cols);
  }
};

TEST_F(PromptSpeedTest, Products) {
  constexpr int32_t kOutputs = 4096, kCols = 4096;
  for (const WeightFormat format :
       {WeightFormat::kQ4_0, WeightFormat::kQ8_0, WeightFormat::kMXFP4, WeightFormat::kQ4K, WeightFormat::kQ6K,
        WeightFormat::kIQ3XXS, WeightFormat::kBF16, WeightFormat::kF16, WeightFormat::kF32, WeightFormat::kQ5_0}) {
    for (const int32_t rows : {64, 512, 2048}) {
      PromptGemmArgs args;
      args.matrix = Matrix(format, kOutputs, kCols);
      args.x = Rows(rows, kCols);
      args.rows = rows;
      args.books = rig().books();
      args.y = rig().Poisoned<float>(Size(int64_t{rows} * kOutputs));
      args.y_stride = kOutputs;
      const double ms = Time([&] { return LaunchPromptGemm(args, rig().queue()); });
      std::cout << quant::Traits(format).name << " " << rows << " x " << kOutputs << " x " << kCols << ": " << ms
                << " ms, " << 2e-9 * rows * kOutputs * kCols / ms << " TFLOP/s\n";
      rig().FreeMemory();
    }
  }
  const DeviceMatrix file = Matrix(WeightFormat::kQ5_0, kOutputs, kCols);
  auto* const to = rig().PoisonedBytes(DeviceMatrixBytes(WeightFormat::kF16, kOutputs, kCols, 0));
  DeviceMatrix tiles;
  const double ms = Time([&] { return LaunchDecodeTiles(file, rig().books(), to, &tiles, rig().queue()); });
  std::cout << "Q5_0 to tiles of f16: " << ms << " ms\n";
}

TEST_F(PromptSpeedTest, Experts) {
  constexpr int32_t kRows = 2048, kUsed = 8, kExperts = 128, kHidden = 2048, kInner = 768, kRoutes = kRows * kUsed;
  for (const WeightFormat format : {WeightFormat::kQ4_0, WeightFormat::kQ4K, WeightFormat::kMXFP4}) {
    PromptExpertArgs args;
    ExpertBank& bank = args.bank;
    bank.gate = Matrix(format, kInner * kExperts, kHidden);
    bank.up = Matrix(format, kInner * kExperts, kHidden);
    bank.down = Matrix(format, kHidden * kExperts, kInner);
    for (DeviceMatrix* w : {&bank.gate, &bank.up, &bank.down}) w->rows /= kExperts;
    bank.slot_bytes = static_cast<int64_t>(BytesOf(bank.gate));  // of `down` too, or less
    std::vector<int32_t> ids;
    for (int32_t r = 0; r < kRoutes; ++r) ids.push_back((r * 37 + r / kUsed * 11) % kExperts);
    args.rows = kRows;
    args.used = kUsed;
    args.experts = kExperts;
    args.routes.ids = args.routes.slots = rig().Upload(ids);
    args.routes.weights = rig().Upload(std::vector<float>(Size(kRoutes), 0.1f));
    args.routes.order = rig().Poisoned<int32_t>(Size(kRoutes));
    args.routes.tiles = rig().Poisoned<ExpertGroup>(Size(PromptTiles(kRoutes, kExperts)));
    args.routes.tile_count = rig().Poisoned<int32_t>(1);
    args.books = rig().books();
    args.x = Rows(kRows, kHidden);
    args.hidden = PoisonedPromptRows(rig(), kRoutes, kInner);
    args.partial = rig().Poisoned<float>(Size(int64_t{kRoutes} * kHidden));
    args.residual = rig().Zeroed<float>(Size(int64_t{kRows} * kHidden));
    PromptSortArgs sort{args.routes, kRows, kUsed, kExperts, rig().Poisoned<int32_t>(kExperts + 1)};
    const double sorting = Time([&] { return LaunchPromptSort(sort, rig().queue()); });
    const double fc1 = Time([&] { return LaunchPromptFc1(args, rig().queue()); });
    const double fc2 = Time([&] { return LaunchPromptFc2(args, rig().queue()); });
    const double combine = Time([&] { return LaunchPromptCombine(args, rig().queue()); });
    const double flops = 2e-9 * kRoutes * kHidden * kInner;
    std::cout << quant::Traits(format).name << " experts, " << kRows << " rows: sort " << sorting << " ms, fc1 " << fc1
              << " ms (" << 2 * flops / fc1 << " TFLOP/s), fc2 " << fc2 << " ms (" << flops / fc2
              << " TFLOP/s), combine " << combine << " ms\n";
    rig().FreeMemory();
  }
}

TEST_F(PromptSpeedTest, Attention) {
  constexpr int32_t kRows = 2048;
  for (const int32_t dim : {64, 128, 256}) {
    for (const int32_t first : {0, 14336}) {
      const int32_t pages = (first + kRows) / kKvPageTokens;
      PromptAttendArgs args;
      args.kv.kv_heads = 4;
      args.kv.key_dim = args.kv.value_dim = dim;
      const int64_t half = int64_t{args.kv.kv_heads} * kKvPageTokens * dim * 2;
      args.kv.page_bytes = 2 * half;
      args.kv.keys = rig().Zeroed<uint8_t>(Size(pages * args.kv.page_bytes));
      args.kv.values = args.kv.keys + half;
      std::vector<int32_t> table;
      for (int32_t p = 0; p < pages; ++p) table.push_back(p);
      args.block_table = rig().Upload(table);
      args.rows = kRows;
      args.first_position = first;
      args.heads = 32;
      args.q_stride = args.heads * dim;
      args.q = rig().Zeroed<float>(Size(kRows * args.q_stride));
      args.scale = 0.1f;
      args.out = PoisonedPromptRows(rig(), kRows, args.heads * dim);
      const double ms = Time([&] { return LaunchPromptAttention(args, rig().queue()); });
      const double flops = 4e-9 * kRows * (first + kRows / 2) * args.heads * dim;
      std::cout << "attention, dims " << dim << ", " << kRows << " rows at " << first << ": " << ms << " ms, "
                << flops / ms << " TFLOP/s\n";
      rig().FreeMemory();
    }
  }
}

TEST_F(PromptSpeedTest, RouterAndNorm) {
  constexpr int32_t kRows = 2048, kHidden = 4096, kExperts = 128, kUsed = 8;
  PromptNormArgs norm;
  norm.values = rig().Zeroed<float>(Size(kRows * kHidden));
  norm.norm = rig().Zeroed<float>(Size(kHidden));
  norm.epsilon = 1e-5f;
  norm.rows = kRows;
  norm.hidden = kHidden;
  norm.x = PoisonedPromptRows(rig(), kRows, kHidden);
  norm.inverse_rms = rig().Poisoned<float>(kRows);
  std::cout << "norm of " << kRows << " x " << kHidden << ": "
            << Time([&] { return LaunchPromptNorm(norm, rig().queue()); }) << " ms\n";
  PromptRouterArgs args;
  RouterArgs& r = args.router;
  r.experts = kExperts;
  r.used = kUsed;
  r.weights = rig().Zeroed<float>(Size(kExperts * kHidden));
  r.x.values = const_cast<float*>(norm.values);
  r.x.norm = norm.norm;
  r.x.hidden = kHidden;
  r.logits = rig().Poisoned<float>(Size(kRows * (kExperts + 1)));
  r.routes.ids = rig().Poisoned<int32_t>(Size(kRows * kUsed));
  r.routes.slots = rig().Poisoned<int32_t>(Size(kRows * kUsed));
  r.routes.weights = rig().Poisoned<float>(Size(kRows * kUsed));
  r.expert_to_slot = rig().Upload(std::vector<const int32_t*>{rig().Zeroed<int32_t>(kExperts)});
  args.rows = kRows;
  args.inverse_rms = norm.inverse_rms;
  std::cout << "router of " << kRows << " x " << kHidden << ", " << kExperts
            << " experts: " << Time([&] { return LaunchPromptRouter(args, rig().queue()); }) << " ms\n";
}

}  // namespace
}  // namespace bellhop::kernels
