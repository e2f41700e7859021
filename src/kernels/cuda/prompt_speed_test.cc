// How fast the kernels of prompts are: nothing is held to it, the numbers are printed.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>

#include "kernels/cuda/prompt_attention.h"
#include "kernels/cuda/prompt_rig_for_test.h"
#include "quant/format.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

struct LayerShape {
  int32_t rows, used, experts, hidden, inner;
};

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
  void TimeExperts(const LayerShape& s, WeightFormat format);
  void TimeAttention(int32_t dim, int32_t rows, int32_t first);
};

// One layer's experts, routes drawn evenly.
void PromptSpeedTest::TimeExperts(const LayerShape& s, WeightFormat format) {
  const int32_t routes = s.rows * s.used;
  PromptExpertArgs args;
  ExpertBank& bank = args.bank;
  bank.gate = Matrix(format, s.inner * s.experts, s.hidden);
  bank.up = Matrix(format, s.inner * s.experts, s.hidden);
  bank.down = Matrix(format, s.hidden * s.experts, s.inner);
  for (DeviceMatrix* w : {&bank.gate, &bank.up, &bank.down}) w->rows /= s.experts;
  // Those of `down` take as many or less: all lie inside of what is there.
  bank.slot_bytes = static_cast<int64_t>(std::min({BytesOf(bank.gate), BytesOf(bank.up), BytesOf(bank.down)}));
  std::mt19937 random(1);
  std::vector<int32_t> ids, all;
  for (int32_t e = 0; e < s.experts; ++e) all.push_back(e);
  for (int32_t m = 0; m < s.rows; ++m) {
    for (int32_t u = 0; u < s.used; ++u) {
      std::swap(all[Size(u)], all[Size(u) + random() % Size(s.experts - u)]);
      ids.push_back(all[Size(u)]);
    }
  }
  args.rows = s.rows;
  args.used = s.used;
  args.experts = s.experts;
  args.routes.ids = args.routes.slots = rig().Upload(ids);
  args.routes.weights = rig().Upload(std::vector<float>(Size(routes), 0.1f));
  args.routes.order = rig().Poisoned<int32_t>(Size(routes));
  args.routes.tiles = rig().Poisoned<ExpertGroup>(Size(PromptTiles(routes, s.experts)));
  args.routes.tile_count = rig().Poisoned<int32_t>(1);
  args.books = rig().books();
  args.x = Rows(s.rows, s.hidden);
  args.hidden = PoisonedPromptRows(rig(), routes, s.inner);
  args.partial = rig().Poisoned<float>(Size(int64_t{routes} * s.hidden));
  args.residual = rig().Zeroed<float>(Size(int64_t{s.rows} * s.hidden));
  int32_t* const offsets = rig().Poisoned<int32_t>(Size(s.experts + 1));
  int32_t* const span_counts = rig().Poisoned<int32_t>(Size((PromptSortSpans(s.rows) + 1) * s.experts));
  for (const PromptDevice& device : PromptDevices()) {
    args.device = device;
    args.routes.tile_rows = PromptTileRows(device.math);
    PromptSortArgs sort;
    sort.routes = args.routes;
    sort.rows = s.rows;
    sort.used = s.used;
    sort.experts = s.experts;
    sort.offsets = offsets;
    sort.span_counts = span_counts;
    const double sorting = Time([&] { return LaunchPromptSort(sort, rig().queue()); });
    const double fc1 = Time([&] { return LaunchPromptFc1(args, rig().queue()); });
    const double fc2 = Time([&] { return LaunchPromptFc2(args, rig().queue()); });
    const double combine = Time([&] { return LaunchPromptCombine(args, rig().queue()); });
    const double flops = 2e-9 * routes * s.hidden * s.inner;
    std::cout << quant::Traits(format).name << " experts, " << s.rows << " rows, " << s.experts << " x " << s.hidden
              << " x " << s.inner << ", " << PromptMathName(device.math) << ": sort " << sorting << " ms, fc1 " << fc1
              << " ms (" << 2 * flops / fc1 << " TFLOP/s), fc2 " << fc2 << " ms (" << flops / fc2
              << " TFLOP/s), combine " << combine << " ms, all " << sorting + fc1 + fc2 + combine << " ms\n";
  }
}

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
      for (const PromptDevice& device : PromptDevices()) {
        args.device = device;
        const double ms = Time([&] { return LaunchPromptGemm(args, rig().queue()); });
        std::cout << quant::Traits(format).name << " " << rows << " x " << kOutputs << " x " << kCols << ", "
                  << PromptMathName(device.math) << ": " << ms << " ms, " << 2e-9 * rows * kOutputs * kCols / ms
                  << " TFLOP/s\n";
      }
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
  const LayerShape shapes[] = {{2048, 8, 128, 2048, 768},
                               {8192, 8, 128, 2048, 768},
                               {512, 10, 512, 2560, 640},
                               {2048, 10, 512, 2560, 640},
                               {8192, 10, 512, 2560, 640}};
  for (const LayerShape& s : shapes) {
    for (const WeightFormat format :
         {WeightFormat::kQ4_0, WeightFormat::kQ8_0, WeightFormat::kMXFP4, WeightFormat::kQ4K, WeightFormat::kQ6K,
          WeightFormat::kIQ3XXS, WeightFormat::kBF16, WeightFormat::kF16}) {
      if (s.inner % static_cast<int32_t>(quant::Traits(format).block_elems) != 0) continue;
      TimeExperts(s, format);
      rig().FreeMemory();
    }
  }
}

// Random, a block of numbers again and again: multipliers of zeros need less power, and the clock is higher.
template <typename T>
std::vector<T> Repeated(size_t count, T (*of)(float)) {
  constexpr size_t kBlock = 60013;
  const std::vector<float> block = Normal(kBlock, 1, 1);
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = of(block[i % kBlock]);
  return values;
}

void PromptSpeedTest::TimeAttention(int32_t dim, int32_t rows, int32_t first) {
  const int32_t pages = (first + rows + kKvPageTokens - 1) / kKvPageTokens;
  PromptAttendArgs args;
  args.kv.kv_heads = 4;
  args.kv.key_dim = args.kv.value_dim = dim;
  const int64_t half = int64_t{args.kv.kv_heads} * kKvPageTokens * dim;
  args.kv.page_bytes = 2 * half * 2;
  args.kv.keys = reinterpret_cast<uint8_t*>(
      rig().Upload(Repeated<uint16_t>(Size(2 * pages * half), [](float v) { return quant::F32ToF16(v); })));
  args.kv.values = args.kv.keys + half * 2;
  std::vector<int32_t> table;
  for (int32_t p = 0; p < pages; ++p) table.push_back(p);
  args.block_table = rig().Upload(table);
  args.rows = rows;
  args.first_position = first;
  args.heads = 32;
  args.q_stride = args.heads * dim + 2 * args.kv.kv_heads * dim;
  args.q = rig().Upload(Repeated<float>(Size(rows * args.q_stride), [](float v) { return v; }));
  args.scale = static_cast<float>(1 / std::sqrt(dim));
  args.out = PoisonedPromptRows(rig(), rows, args.heads * dim);
  for (const PromptDevice& device : PromptDevices()) {
    args.device = device;
    const double ms = Time([&] { return LaunchPromptAttention(args, rig().queue()); });
    const double flops = 4e-9 * rows * (first + rows / 2) * args.heads * dim;
    std::cout << "attention, dims " << dim << ", " << rows << " rows at " << first << ", "
              << PromptMathName(device.math) << ": " << ms << " ms, " << flops / ms << " TFLOP/s\n";
  }
  rig().FreeMemory();
}

TEST_F(PromptSpeedTest, Attention) {
  for (const int32_t dim : {128, 64, 256}) {
    for (const int32_t rows : {8192, 2048, 512}) TimeAttention(dim, rows, 0);
    TimeAttention(dim, 2048, 14336);
  }
}

TEST_F(PromptSpeedTest, RouterAndNorm) {
  constexpr int32_t kMostRows = 8192;
  struct Shape {
    int32_t hidden, experts, used;
    bool shared_gate;
  };
  for (const Shape& s : {Shape{2560, 512, 10, false}, Shape{2048, 512, 10, true}, Shape{2048, 128, 8, false}}) {
    float* const values = rig().Upload(Normal(Size(kMostRows * s.hidden), 1, 1));
    for (const int32_t rows : {64, 512, 2048, kMostRows}) {
      PromptNormArgs norm;
      norm.values = values;
      norm.norm = rig().Upload(Normal(Size(s.hidden), 1, 2));
      norm.epsilon = 1e-5f;
      norm.rows = rows;
      norm.hidden = s.hidden;
      norm.x = PoisonedPromptRows(rig(), rows, s.hidden);
      norm.inverse_rms = rig().Poisoned<float>(Size(rows));
      PromptRouterArgs args;
      RouterArgs& r = args.router;
      r.experts = s.experts;
      r.used = s.used;
      r.normalise = true;
      r.shared_gate = s.shared_gate;
      r.weights = rig().Upload(Normal(Size((s.experts + 1) * s.hidden), 0.02f, 3));
      r.x.values = values;
      r.x.norm = norm.norm;
      r.x.hidden = s.hidden;
      r.logits = rig().Poisoned<float>(Size(rows * (s.experts + 1)));
      r.routes.ids = rig().Poisoned<int32_t>(Size(rows * s.used));
      r.routes.slots = rig().Poisoned<int32_t>(Size(rows * s.used));
      r.routes.weights = rig().Poisoned<float>(Size(rows * s.used));
      r.routes.shared_weights = rig().Poisoned<float>(Size(rows));
      r.expert_to_slot = rig().Upload(std::vector<const int32_t*>{rig().Zeroed<int32_t>(Size(s.experts))});
      args.rows = rows;
      args.inverse_rms = norm.inverse_rms;
      const double norms = Time([&] { return LaunchPromptNorm(norm, rig().queue()); });
      const double router = Time([&] { return LaunchPromptRouter(args, rig().queue()); });
      std::cout << rows << " x " << s.hidden << ", " << s.experts << " experts" << (s.shared_gate ? " and a gate" : "")
                << ": norm " << norms << " ms, router " << router << " ms ("
                << 2e-9 * rows * s.experts * s.hidden / router << " TFLOP/s)\n";
    }
    rig().FreeMemory();
  }
}

TEST_F(PromptSpeedTest, SortAndCombine) {
  constexpr int32_t kMostRows = 8192, kUsed = 10, kExperts = 512, kHidden = 2560;
  PromptExpertArgs args;
  args.used = kUsed;
  args.experts = kExperts;
  args.bank.down.rows = kHidden;
  args.partial = rig().Zeroed<float>(Size(int64_t{kMostRows} * kUsed * kHidden));
  args.residual = rig().Zeroed<float>(Size(kMostRows * kHidden));
  std::mt19937 random(1);
  for (const int32_t rows : {64, 512, 2048, kMostRows}) {
    std::vector<int32_t> ids;
    for (int32_t m = 0; m < rows; ++m) {
      const auto first = static_cast<int32_t>(random() % kExperts);
      for (int32_t u = 0; u < kUsed; ++u) ids.push_back((first + u * 37) % kExperts);
    }
    args.rows = rows;
    args.routes.ids = args.routes.slots = rig().Upload(ids);
    args.routes.weights = rig().Upload(std::vector<float>(ids.size(), 0.1f));
    args.routes.order = rig().Poisoned<int32_t>(ids.size());
    args.routes.tiles = rig().Poisoned<ExpertGroup>(Size(PromptTiles(rows * kUsed, kExperts)));
    args.routes.tile_count = rig().Poisoned<int32_t>(1);
    PromptSortArgs sort;
    sort.routes = args.routes;
    sort.rows = rows;
    sort.used = kUsed;
    sort.experts = kExperts;
    sort.offsets = rig().Poisoned<int32_t>(kExperts + 1);
    sort.span_counts = rig().Poisoned<int32_t>(Size((PromptSortSpans(rows) + 1) * kExperts));
    const double sorting = Time([&] { return LaunchPromptSort(sort, rig().queue()); });
    const double combine = Time([&] { return LaunchPromptCombine(args, rig().queue()); });
    std::cout << rows << " rows, " << kUsed << " of " << kExperts << " experts, " << kHidden << " columns: sort "
              << sorting << " ms, combine " << combine << " ms\n";
  }
}

}  // namespace
}  // namespace bellhop::kernels
