// The PCIe lane: experts in staging slots are those of LaunchPackTiles byte for byte, and a layer computes them bit for
// bit as resident ones.
#include "kernels/cuda/expert_fetch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cuda/doorbell_sums.h"
#include "kernels/cuda/expert_layer_for_test.h"
#include "quant/format.h"

namespace bellhop::kernels {
namespace {

using quant::WeightFormat;

constexpr int32_t kFirstSlot = 1000;
constexpr float kEpsilon = 1e-5f;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

class ExpertFetchTest : public GpuTest {
 protected:
  // Every matrix in pinned memory at an offset of its own.
  const FetchSource* Sources(const HostExperts& experts) {
    std::vector<FetchSource> sources;
    uint64_t shift = 1;
    auto pin = [&](const std::vector<uint8_t>& plane) {
      uint8_t* const to = rig().Pinned(plane.size() + 64) + shift;
      shift = (shift + 6) % 32;
      std::copy(plane.begin(), plane.end(), to);
      return to;
    };
    for (size_t e = 0; e < experts.gate.size(); ++e) {
      const HostMatrix &gate = experts.gate[e], &up = experts.up[e], &down = experts.down[e];
      sources.push_back(
          {pin(gate.file), pin(up.file), pin(down.file), pin(gate.scales), pin(up.scales), pin(down.scales)});
    }
    return rig().Upload(sources);
  }

  PcieLane Lane(const HostExperts& experts, int32_t slots, InnerRange inner) {
    const SlotOffsets at = OffsetsOf(experts);
    return {.sources = Sources(experts),
            .misses = {.experts = rig().Poisoned<int32_t>(Size(experts.shape.experts)),
                       .count = rig().Poisoned<int32_t>(1)},
            .staging = {.base = rig().PoisonedBytes(static_cast<uint64_t>(slots * at.bytes)),
                        .slot_bytes = at.bytes,
                        .gate = at.gate,
                        .up = at.up,
                        .down = at.down,
                        .first_slot = kFirstSlot},
            .inner = inner};
  }

  // Copies what the fetch must write of a matrix into its slot.
  void Expect(const HostMatrix& m, int32_t first_row, int32_t end_row, int32_t first_col, int32_t end_col,
              uint8_t* slot) {
    const DeviceMatrix d = Describe(m, UsualLayout(m.format));
    uint8_t* const packed = rig().PoisonedBytes(BytesOf(d));
    Place(rig(), m, d.layout, packed);
    const auto bytes = rig().Download(packed, BytesOf(d));
    const int32_t step = InnerStep(d);
    auto copy = [&](int64_t at, int64_t count) { std::copy_n(bytes.begin() + at, count, slot + at); };
    end_row = std::min(end_row, m.rows);
    end_col = std::min(end_col, m.cols);
    if (d.layout == MatrixLayout::kFile) {
      const int64_t begin = m.row_bytes * first_col / m.cols, end = m.row_bytes * end_col / m.cols;
      for (int64_t r = first_row; r < end_row; ++r) copy(r * m.row_bytes + begin, end - begin);
      return;
    }
    const int64_t chunk_bytes = Tiles(d.format).chunk_bytes;
    for (int64_t tile = first_row / kTileRows; tile * kTileRows < end_row; ++tile) {
      for (int64_t c = first_col / step; c * step < end_col; ++c)
        copy((tile * d.chunks + c) * chunk_bytes, chunk_bytes);
    }
  }

  void ExpectFetch(const LayerShape& shape, InnerRange inner) {
    SCOPED_TRACE(testing::Message() << quant::Traits(shape.gate).name << " " << quant::Traits(shape.up).name << " "
                                    << quant::Traits(shape.down).name << " " << shape.hidden << " " << inner.begin);
    constexpr int32_t kSlots = 4;
    const HostExperts experts = RandomExperts(shape, 1);
    const PcieLane lane = Lane(experts, kSlots, inner);
    const SlotOffsets at = OffsetsOf(experts);
    const ExpertBank bank = MakeBank(rig(), experts, {}, 0);
    const std::vector<int32_t> missing = {0, 2, 4};
    for (const int32_t count : {0, 1, 3}) {
      rig().Copy(lane.misses.experts, missing.data(), missing.size() * sizeof(int32_t));
      rig().Copy(lane.misses.count, &count, sizeof(count));
      ASSERT_EQ(LaunchExpertFetch(FetchOf(lane, bank, 2, shape.experts), 4, rig().queue()), cudaSuccess);
      std::vector<uint8_t> want(Size(kSlots * at.bytes), 0xFF);
      for (int32_t i = 0; i < count; ++i) {
        const size_t e = Size(missing[Size(i)]);
        uint8_t* const slot = want.data() + i * at.bytes;
        Expect(experts.gate[e], inner.begin, inner.end, 0, shape.hidden, slot + at.gate);
        Expect(experts.up[e], inner.begin, inner.end, 0, shape.hidden, slot + at.up);
        Expect(experts.down[e], 0, shape.hidden, inner.begin, inner.end, slot + at.down);
      }
      const auto got = rig().Download(lane.staging.base, want.size());
      const auto differs = std::mismatch(got.begin(), got.end(), want.begin());
      ASSERT_TRUE(differs.first == got.end())
          << count << " misses, byte " << differs.first - got.begin() << " of slots of " << at.bytes << ", up at "
          << at.up << ", down at " << at.down;
    }
    FetchArgs some = FetchOf(lane, bank, 2, shape.experts);
    some.route_offsets = rig().Upload(std::vector<int32_t>{0, 3, 3, 4, 4, 9});  // 0, 2 and 4 have routes
    some.fetched = rig().Upload(std::vector<uint64_t>{7});
    const std::vector<int32_t> all = {0, 1, 2, 3};
    const int32_t count = 4;
    rig().Copy(lane.misses.experts, all.data(), all.size() * sizeof(int32_t));
    rig().Copy(lane.misses.count, &count, sizeof(count));
    const auto before = rig().Download(lane.staging.base, Size(kSlots * at.bytes));
    ASSERT_EQ(LaunchExpertFetch(some, 1, rig().queue()), cudaSuccess);
    const auto got = rig().Download(lane.staging.base, Size(kSlots * at.bytes));
    for (int32_t i = 0; i < count; ++i) {
      std::vector<uint8_t> want(before.begin() + i * at.bytes, before.begin() + (i + 1) * at.bytes);
      if (i % 2 == 0) {
        const size_t e = Size(i);
        Expect(experts.gate[e], inner.begin, inner.end, 0, shape.hidden, want.data() + at.gate);
        Expect(experts.up[e], inner.begin, inner.end, 0, shape.hidden, want.data() + at.up);
        Expect(experts.down[e], 0, shape.hidden, inner.begin, inner.end, want.data() + at.down);
      }
      EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin() + i * at.bytes)) << "slot " << i;
    }
    EXPECT_EQ(rig().Download(some.fetched, 1)[0], 9u);
    rig().FreeMemory();
  }

  struct LayerRun {
    std::vector<int32_t> ids, slots, staged;
    std::vector<float> weights, partial, values;
    cuda::DoorbellState doorbell;
  };

  // Router, fetch, fc1 and fc2. answer(router): the CPU's part, before the step.
  template <typename Answer>
  LayerRun Run(const HostExperts& experts, const std::vector<int32_t>& slot_of, const std::vector<float>& values,
               int32_t rows, int32_t bucket, PcieLane* lane, const Answer& answer) {
    const LayerShape& s = experts.shape;
    const auto norm = Normal(Size(s.hidden), 1, 3);
    auto padded = values;
    padded.resize(Size(int64_t{bucket} * s.hidden), NAN);
    const ResidualRows x = UploadResidual(rig(), padded, norm, bucket, kEpsilon, 2);
    const auto router_weights = Normal(Size(s.experts * s.hidden), 0.1f, 4);
    RouterArgs router = MakeRouter(rig(), {.experts = s.experts, .used = s.used, .rows = rows, .bucket = bucket}, x,
                                   TimesNorm(router_weights, norm), slot_of);
    ExpertArgs layer = LayerArgs(rig(), experts, MakeBank(rig(), experts, slot_of, s.experts), bucket, 2);
    layer.layer = router.layer;
    layer.rows = router.rows;
    layer.routes = router.routes;
    layer.x = x;
    layer.next = NextResidual(rig(), x, norm, rows);
    layer.channel = router.channel;
    layer.doorbell = router.doorbell;
    if (lane != nullptr) {
      AddPcieLane(*lane, &router);
      AddPcieLane(*lane, &layer);
    }
    answer(router);
    EXPECT_EQ(LaunchRouter(router, bucket, rig().queue()), cudaSuccess);
    if (lane != nullptr) {
      const FetchArgs fetch = FetchOf(*lane, layer.bank, s.used, s.experts);
      EXPECT_EQ(LaunchExpertFetch(fetch, bucket, rig().queue()), cudaSuccess);
    }
    EXPECT_EQ(LaunchExpertFc1(layer, bucket, rig().queue()), cudaSuccess);
    EXPECT_EQ(LaunchExpertFc2(layer, bucket, rig().queue()), cudaSuccess);
    const size_t routes = Size(rows * s.used);
    LayerRun run{.ids = rig().Download(router.routes.ids, routes),
                 .slots = rig().Download(router.routes.slots, routes),
                 .staged = {},
                 .weights = rig().Download(router.routes.weights, routes),
                 .partial = rig().Download(layer.partial, routes * Size(s.hidden)),
                 .values = rig().Download(x.values, values.size()),
                 .doorbell = rig().Download(router.doorbell, 1)[0]};
    ExpectResidual(rig(), layer.next, norm, rows);
    if (lane != nullptr) {
      run.staged = rig().Download(lane->misses.experts, Size(rig().Download(lane->misses.count, 1)[0]));
    }
    return run;
  }
};

LayerShape Shape(WeightFormat gate, WeightFormat down, int32_t hidden, int32_t inner) {
  return {.gate = gate, .up = gate, .down = down, .experts = 5, .used = 2, .hidden = hidden, .inner = inner};
}

TEST_F(ExpertFetchTest, StagedBytesAreThoseOfPackedTiles) {
  const InnerRange all;
  for (const WeightFormat format : {WeightFormat::kQ4_0, WeightFormat::kQ8_0, WeightFormat::kMXFP4}) {
    ExpectFetch(Shape(format, format, 96, 160), all);
    ExpectFetch(Shape(format, format, 4128, 64), all);  // rows that are cut, the last chunk not full
    ExpectFetch(Shape(format, format, 32, 8224), all);
  }
  for (const WeightFormat format : {WeightFormat::kQ4K, WeightFormat::kQ6K, WeightFormat::kIQ3XXS}) {
    ExpectFetch(Shape(format, format, 512, 256), all);
    ExpectFetch(Shape(format, format, 256, 5376), all);
  }
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16}) {
    ExpectFetch(Shape(format, format, 75, 41), all);
    ExpectFetch(Shape(format, format, 1500, 33), all);
  }
  for (const WeightFormat format :
       {WeightFormat::kInt4, WeightFormat::kInt3, WeightFormat::kInt8, WeightFormat::kMxfp4Planar}) {
    ExpectFetch(Shape(format, format, 96, 160), all);
    ExpectFetch(Shape(format, format, 352, 640), all);
    ExpectFetch(Shape(format, format, 8224, 96), all);  // rows that are cut
  }
  // As they lie.
  ExpectFetch(Shape(WeightFormat::kQ5K, WeightFormat::kQ5_0, 512, 96), all);
  ExpectFetch(Shape(WeightFormat::kIQ4NL, WeightFormat::kIQ4XS, 4128, 256), all);
  ExpectFetch({.gate = WeightFormat::kQ4K,
               .up = WeightFormat::kIQ4XS,
               .down = WeightFormat::kMXFP4,
               .experts = 5,
               .used = 2,
               .hidden = 768,
               .inner = 352},
              all);
}

TEST_F(ExpertFetchTest, AnInnerRangeIsFetchedAlone) {
  for (const InnerRange inner : {InnerRange{0, 256}, InnerRange{256, 512}, InnerRange{512, INT32_MAX}}) {
    ExpectFetch(Shape(WeightFormat::kQ4_0, WeightFormat::kQ4_0, 160, 544), inner);
    ExpectFetch(Shape(WeightFormat::kMXFP4, WeightFormat::kQ8_0, 160, 1312), inner);
    ExpectFetch(Shape(WeightFormat::kQ4K, WeightFormat::kQ6K, 512, 768), inner);
    ExpectFetch(Shape(WeightFormat::kIQ3XXS, WeightFormat::kBF16, 256, 777), inner);
    ExpectFetch(Shape(WeightFormat::kIQ4XS, WeightFormat::kQ5_1, 256, 544), inner);
    ExpectFetch(Shape(WeightFormat::kInt4, WeightFormat::kInt3, 160, 768), inner);
    ExpectFetch(Shape(WeightFormat::kInt3, WeightFormat::kInt8, 192, 672), inner);
    ExpectFetch(Shape(WeightFormat::kInt8, WeightFormat::kInt4, 96, 544), inner);
  }
}

TEST_F(ExpertFetchTest, ARangeThatCutsAChunkIsRefused) {
  const HostExperts experts = RandomExperts(Shape(WeightFormat::kQ4_0, WeightFormat::kQ4_0, 96, 256), 1);
  const ExpertBank bank = MakeBank(rig(), experts, {}, 0);
  const FetchArgs fetch = FetchOf(Lane(experts, 1, {32, 256}), bank, 2, 5);
  EXPECT_FALSE(CanFetch(fetch));
  EXPECT_EQ(LaunchExpertFetch(fetch, 4, rig().queue()), cudaErrorInvalidValue);
  EXPECT_TRUE(CanFetch(FetchOf(Lane(experts, 1, {128, 256}), bank, 2, 5)));
}

// What fc2 makes of the experts' results.
std::vector<float> Combine(const std::vector<float>& values, const std::vector<float>& partial,
                           const std::vector<float>& weights, const std::vector<int32_t>& slots, const LayerShape& s) {
  std::vector<float> y = values;
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t m = i / Size(s.hidden), c = i % Size(s.hidden);
    float hits = 0, misses = 0;
    for (size_t r = m * Size(s.used); r < (m + 1) * Size(s.used); ++r) {
      float& sum = slots[r] >= kFirstSlot ? misses : hits;
      sum = std::fma(weights[r], partial[r * Size(s.hidden) + c], sum);
    }
    y[i] = y[i] + s.port_scale * hits;
    y[i] = y[i] + s.port_scale * misses;
  }
  return y;
}

TEST_F(ExpertFetchTest, ALayerWithMissesHasTheResultsOfAResidentOne) {
  constexpr int32_t kRows = 7, kBucket = 8;
  const auto nothing = [](const RouterArgs&) {};
  for (const auto& [gate, down] :
       {std::pair{WeightFormat::kMXFP4, WeightFormat::kMXFP4}, std::pair{WeightFormat::kQ4K, WeightFormat::kQ6K},
        std::pair{WeightFormat::kQ5K, WeightFormat::kIQ4NL}, std::pair{WeightFormat::kInt4, WeightFormat::kInt3}}) {
    LayerShape shape = Shape(gate, down, 512, 256);
    shape.experts = 12;
    shape.used = 3;
    shape.biases = true;
    shape.port_scale = 0.5f;
    const HostExperts experts = RandomExperts(shape, 5);
    const auto values = Normal(Size(kRows * shape.hidden), 0.01f, 6);
    std::vector<int32_t> resident, some(12, -1), none(12, -1);
    for (int32_t e = 0; e < 12; ++e) {
      resident.push_back(11 - e);
      if (e % 3 == 1) some[Size(e)] = e / 3;
    }
    const LayerRun want = Run(experts, resident, values, kRows, kBucket, nullptr, nothing);
    for (const auto& slot_of : {some, none, resident}) {
      PcieLane lane = Lane(experts, 12, {});
      const LayerRun got = Run(experts, slot_of, values, kRows, kBucket, &lane, nothing);
      EXPECT_EQ(got.ids, want.ids);
      EXPECT_TRUE(SameBits(got.weights.data(), want.weights.data(), want.weights.size()));
      EXPECT_TRUE(SameBits(got.partial.data(), want.partial.data(), want.partial.size()));
      const auto combined = Combine(values, want.partial, want.weights, got.slots, shape);
      EXPECT_TRUE(SameBits(got.values.data(), combined.data(), combined.size()));
      const bool mixed = slot_of == some;
      EXPECT_TRUE(mixed || SameBits(got.values.data(), want.values.data(), want.values.size()));

      std::vector<int32_t> staged;
      for (int32_t e = 0; e < 12; ++e) {
        const bool used = std::find(got.ids.begin(), got.ids.end(), e) != got.ids.end();
        if (used && slot_of[Size(e)] < 0) staged.push_back(e);
      }
      EXPECT_EQ(got.staged, staged);
      uint64_t misses = 0;
      for (size_t r = 0; r < got.ids.size(); ++r) {
        const auto index = std::find(staged.begin(), staged.end(), got.ids[r]);
        const bool miss = index != staged.end();
        const auto slot = miss ? kFirstSlot + static_cast<int32_t>(index - staged.begin()) : slot_of[Size(got.ids[r])];
        EXPECT_EQ(got.slots[r], slot);
        misses += miss ? 1 : 0;
      }
      EXPECT_EQ(got.doorbell.counters.misses, misses);
      EXPECT_EQ(got.doorbell.counters.hits, got.ids.size() - misses);
      EXPECT_EQ(got.doorbell.rings, 0u);
      EXPECT_EQ(got.doorbell.pending, 0u);
      rig().FreeMemory();
    }
  }
}

// The CPU's part is computed here and lies in the channel before the layer asks.
TEST_F(ExpertFetchTest, TheSplitLaneAddsBothParts) {
  constexpr int32_t kRows = 5, kBucket = 8;
  for (const InnerRange inner : {InnerRange{0, 128}, InnerRange{128, INT32_MAX}}) {
    LayerShape shape = Shape(WeightFormat::kMXFP4, WeightFormat::kMXFP4, 160, 352);
    shape.experts = 10;
    shape.used = 3;
    shape.biases = true;
    const InnerRange rest = inner.begin == 0 ? InnerRange{inner.end, INT32_MAX} : InnerRange{0, inner.begin};
    const HostExperts experts = RandomExperts(shape, 5);
    const auto values = Normal(Size(kRows * shape.hidden), 0.01f, 6);
    const auto exact = Normalised(values, Normal(Size(shape.hidden), 1, 3), kRows, kEpsilon);
    const auto nothing = [](const RouterArgs&) {};
    std::vector<int32_t> resident, some(10, -1);
    for (int32_t e = 0; e < 10; ++e) {
      resident.push_back(e);
      if (e % 2 == 1) some[Size(e)] = e;
    }
    const LayerRun all = Run(experts, resident, values, kRows, kBucket, nullptr, nothing);
    PcieLane lane = Lane(experts, 10, inner);
    lane.splits = true;
    const LayerRun got = Run(experts, some, values, kRows, kBucket, &lane, [&](const RouterArgs& router) {
      std::vector<float> sums(Size(kRows * shape.hidden));
      for (size_t r = 0; r < all.ids.size(); ++r) {
        if (some[Size(all.ids[r])] >= 0) continue;
        const size_t m = r / Size(shape.used);
        const auto out = ExpertResult(experts, all.ids[r], exact.data() + m * Size(shape.hidden), rest);
        float* const y = sums.data() + m * Size(shape.hidden);
        for (size_t c = 0; c < out.size(); ++c) y[c] += static_cast<float>(double{all.weights[r]} * out[c]);
      }
      const MatView<uint32_t> to = cuda::DoorbellSums(router.channel).Of(1, kRows);
      for (int32_t m = 0; m < kRows; ++m) {
        cuda::PublishSums(sums.data() + Size(m * shape.hidden), shape.hidden, to.Row(m));
      }
    });
    EXPECT_EQ(got.ids, all.ids);
    EXPECT_EQ(got.doorbell.rings, 1u);
    EXPECT_EQ(got.doorbell.completed, 1u);
    const HostRoutes routes{.rows = kRows, .used = 3, .ids = all.ids, .slots = all.slots, .weights = all.weights};
    const auto want = LayerResult(experts, routes, values, exact);
    EXPECT_LE(RelativeL2(all.values, want), 2 * Tolerance(2));
    EXPECT_LE(RelativeL2(got.values, want), 2 * Tolerance(2));
    rig().FreeMemory();
  }
}

}  // namespace
}  // namespace bellhop::kernels
