// Prompts on a GPU against the CPU's prompt class, at several residencies, however the rows are cut and wherever the
// experts are. Without a GPU the tests are skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cuda/device_info.h"
#include "cuda/memory_ledger.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/manifest_builder.h"
#include "model/arch/registry.h"
#include "model/gpu_model.h"
#include "model/transformer.h"
#include "plan/gpu_placement.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

using model::SequenceState;
using model::StepRow;

constexpr int32_t kRows = 200, kContext = 256, kPrompt = 150, kWanted = 70;

class GpuPromptTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto devices = cuda::ListDevices();
    if (!devices.ok()) GTEST_SKIP() << devices.status().ToString();
    registers_ = devices->front().registers_read_only;
    auto files = formats::GgufModel::Open(ShippedModel());
    ASSERT_TRUE(files.ok()) << files.status().ToString();
    files_.emplace(std::move(*files));
    auto manifest = formats::BuildManifest(*files_);
    ASSERT_TRUE(manifest.ok());
    manifest_ = std::move(*manifest);
    auto spec = model::BuildSpec(manifest_);
    ASSERT_TRUE(spec.ok());
    spec_ = std::move(*spec);
    auto store = store::ExpertStore::Create(manifest_);
    ASSERT_TRUE(store.ok());
    store_ = std::move(*store);
    auto pool = sys::WorkerPool::Create({.cpus = {0, 0}, .pin = false});
    ASSERT_TRUE(pool.ok());
    pool_ = std::move(*pool);
    options_.base = {.max_rows = kRows, .context_tokens = kContext, .sequences = 2};
    options_.deadline_ns = 20'000'000'000;
    for (int32_t i = 0; i < kPrompt; ++i) {
      tokens_.push_back(static_cast<TokenId>(static_cast<uint64_t>(i) * 7919 % static_cast<uint64_t>(spec_.vocab)));
    }
  }

  void Load(double percent) {
    model_.reset();
    ledger_.emplace();
    options_.ledger = &*ledger_;
    const auto layers = plan::ExpertLayers(manifest_);
    auto placed = plan::PlaceExperts({.layers = layers,
                                      .popularity = plan::EvenPopularity(layers),
                                      .machine = plan::DefaultConstants(),
                                      .lane = config::MissLane::kCpu,
                                      .budget_bytes = uint64_t{1} << 32,
                                      .percent = percent});
    ASSERT_TRUE(placed.ok()) << placed.status().ToString();
    placement_ = std::move(*placed);
    notes_.clear();
    auto model =
        model::CreateGpuModel(manifest_, spec_, *store_, placement_, pool_.get(), sys::DetectCpu(), options_, &notes_);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::move(*model);
  }

  // Logits of the prompt's last kWanted rows, computed in chunks of these sizes, in turn.
  std::vector<float> Run(model::StepModel* model, const std::vector<int32_t>& chunks,
                         moe::NumericClass numeric_class = moe::NumericClass::kPrompt) {
    auto sequence = model->NewSequence();
    const auto vocab = static_cast<size_t>(spec_.vocab);
    std::vector<float> logits(kWanted * vocab);
    int64_t wanted = 0;
    for (size_t c = 0; sequence->length() < kPrompt; ++c) {
      const int32_t rows = std::min(chunks[c % chunks.size()], kPrompt - sequence->length());
      EXPECT_TRUE(sequence->Reserve(rows).ok());
      std::vector<StepRow> step;
      int64_t own = 0;
      for (int32_t i = 0; i < rows; ++i) {
        const int32_t position = sequence->length() + i;
        step.push_back(
            {sequence.get(), position, tokens_[static_cast<size_t>(position)], position >= kPrompt - kWanted});
        own += step.back().want_logits ? 1 : 0;
      }
      const Status status =
          model->Forward(numeric_class, step, {logits.data() + wanted * spec_.vocab, own, spec_.vocab, spec_.vocab});
      EXPECT_TRUE(status.ok()) << status.ToString();
      if (!status.ok()) return logits;
      sequence->Accept(rows);
      wanted += own;
    }
    EXPECT_EQ(wanted, kWanted);
    return logits;
  }

  std::vector<float> OnTheCpu(moe::NumericClass numeric_class) {
    const auto cold = plan::Placement::AllCold(ExpertsPerLayer());
    std::vector<std::string> notes;
    auto cpu = model::Transformer::Create(manifest_, spec_, *store_, cold, pool_.get(), sys::DetectCpu(), options_.base,
                                          &notes);
    EXPECT_TRUE(cpu.ok()) << cpu.status().ToString();
    return cpu.ok() ? Run(cpu->get(), {kPrompt}, numeric_class) : std::vector<float>();
  }
  std::vector<int32_t> ExpertsPerLayer() const {
    std::vector<int32_t> experts;
    for (int32_t l = 0; l < store_->layers(); ++l) experts.push_back(store_->experts(LayerId(l)));
    return experts;
  }

  static double RelativeL2(const std::vector<float>& got, const std::vector<float>& want) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
      norm += double{want[i]} * want[i];
    }
    return std::sqrt(error / norm);
  }
  double WorstRow(const std::vector<float>& got, const std::vector<float>& want) const {
    const auto vocab = static_cast<std::ptrdiff_t>(spec_.vocab);
    double worst = 0;
    for (std::ptrdiff_t row = 0; row < kWanted; ++row) {
      const auto of = [&](const std::vector<float>& all) {
        return std::vector<float>(all.begin() + row * vocab, all.begin() + (row + 1) * vocab);
      };
      worst = std::max(worst, RelativeL2(of(got), of(want)));
    }
    return worst;
  }

  bool registers_ = false;
  std::optional<formats::GgufModel> files_;
  manifest::Manifest manifest_;
  model::ModelSpec spec_;
  std::unique_ptr<store::ExpertStore> store_;
  std::unique_ptr<sys::WorkerPool> pool_;
  model::GpuModelOptions options_;
  plan::GpuPlacement placement_;
  std::optional<cuda::MemoryLedger> ledger_;  // outlives the model
  std::unique_ptr<model::StepModel> model_;
  std::vector<std::string> notes_;
  std::vector<TokenId> tokens_;
};

TEST_F(GpuPromptTest, LogitsAreTheCpusAtEveryResidency) {
  const std::vector<float> want = OnTheCpu(moe::NumericClass::kPrompt);
  const std::vector<float> exact = OnTheCpu(moe::NumericClass::kDecode);
  ASSERT_EQ(want.size(), exact.size());
  const double cpu_error = RelativeL2(want, exact);
  std::vector<float> first;
  for (const double percent : {100.0, 50.0, 0.0}) {
    for (const bool reads : {false, true}) {
      // Many small waves, or one of a layer.
      for (const uint64_t wave_bytes : {uint64_t{1}, uint64_t{32} << 20}) {
        if (percent == 100 && (reads || wave_bytes > 1)) continue;
        SCOPED_TRACE(testing::Message() << percent << " %, " << (reads ? "read in place" : "copied") << ", waves of "
                                        << wave_bytes);
        options_.reads_experts = reads;
        options_.wave_bytes = wave_bytes;
        ASSERT_NO_FATAL_FAILURE(Load(percent));
        const std::vector<float> got = Run(model_.get(), {kPrompt});
        EXPECT_LE(RelativeL2(got, want), 5e-3);
        EXPECT_LE(WorstRow(got, want), 1e-2);
        // What rounded activations cost, the CPU pays too.
        EXPECT_LE(RelativeL2(got, exact), 1.1 * cpu_error);
        // Slot or wave: the same bits.
        if (first.empty()) first = got;
        EXPECT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0);
      }
    }
  }
}

TEST_F(GpuPromptTest, ChunksOfAnySizeHaveTheSameBits) {
  options_.wave_bytes = 1;
  for (const double percent : {100.0, 50.0}) {
    ASSERT_NO_FATAL_FAILURE(Load(percent));
    const std::vector<float> whole = Run(model_.get(), {kPrompt});
    for (const std::vector<int32_t>& chunks :
         std::vector<std::vector<int32_t>>{{64}, {1, 63, 65, 7}, {33}, {128, 1}, {5, 2, 140}}) {
      const std::vector<float> got = Run(model_.get(), chunks);
      EXPECT_EQ(std::memcmp(got.data(), whole.data(), whole.size() * sizeof(float)), 0)
          << "chunks of " << chunks[0] << " at " << percent << " %";
    }
  }
}

// A step may hold pieces of several sequences; each piece is a chunk.
TEST_F(GpuPromptTest, SequencesShareAStep) {
  ASSERT_NO_FATAL_FAILURE(Load(50));
  const auto vocab = static_cast<size_t>(spec_.vocab);
  const auto rows_of = [&](SequenceState* sequence, int32_t first, int32_t count) {
    EXPECT_TRUE(sequence->Reserve(count).ok());
    std::vector<StepRow> rows;
    for (int32_t i = 0; i < count; ++i) {
      rows.push_back({sequence, i, tokens_[static_cast<size_t>(first + i)], i + 1 == count});
    }
    return rows;
  };
  const auto forward = [&](const std::vector<StepRow>& rows, int64_t wanted) {
    std::vector<float> logits(static_cast<size_t>(wanted) * vocab);
    const Status status =
        model_->Forward(moe::NumericClass::kPrompt, rows, {logits.data(), wanted, spec_.vocab, spec_.vocab});
    EXPECT_TRUE(status.ok()) << status.ToString();
    return logits;
  };
  std::vector<float> alone;
  std::vector<StepRow> both;
  std::vector<std::unique_ptr<SequenceState>> sequences;
  for (const int32_t first : {0, 70}) {
    auto sequence = model_->NewSequence();
    const auto logits = forward(rows_of(sequence.get(), first, 60 + first / 7), 1);
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  for (const int32_t first : {0, 70}) {
    sequences.push_back(model_->NewSequence());
    const auto rows = rows_of(sequences.back().get(), first, 60 + first / 7);
    both.insert(both.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(forward(both, 2), alone);
}

// What a prompt routes is counted, and nothing else is.
TEST_F(GpuPromptTest, RoutesAreCounted) {
  const auto cold = plan::Placement::AllCold(ExpertsPerLayer());
  std::vector<std::string> notes;
  auto cpu =
      model::Transformer::Create(manifest_, spec_, *store_, cold, pool_.get(), sys::DetectCpu(), options_.base, &notes);
  ASSERT_TRUE(cpu.ok());
  Run(cpu->get(), {50});
  const moe::RouteCounts& want = *(*cpu)->counts();
  uint64_t cpu_experts = 0, routes = want.hits() + want.misses();
  for (const auto& layer : want.per_layer()) cpu_experts += layer.hot_experts + layer.cold_experts;
  for (const bool reads : {false, true}) {
    options_.reads_experts = reads;
    options_.wave_bytes = 1;
    ASSERT_NO_FATAL_FAILURE(Load(50));
    EXPECT_EQ(model_->counts()->hits() + model_->counts()->misses(), 0u);
    EXPECT_EQ(model_->Traffic().pcie_bytes, 0u);
    Run(model_.get(), {50});
    const moe::RouteCounts& counts = *model_->counts();
    EXPECT_EQ(counts.hits() + counts.misses(), routes);
    EXPECT_GT(counts.hits(), 0u);
    EXPECT_GT(counts.misses(), 0u);
    uint64_t experts = 0, missed = 0, bytes = 0;
    for (size_t l = 0; l < counts.per_layer().size(); ++l) {
      const auto& layer = counts.per_layer()[l];
      experts += layer.hot_experts + layer.cold_experts;
      missed += layer.cold_experts;
      bytes += layer.cold_experts * store_->LayerBytes(LayerId(static_cast<int32_t>(l))) /
               static_cast<uint64_t>(store_->experts(LayerId(static_cast<int32_t>(l))));
    }
    EXPECT_NEAR(static_cast<double>(experts), static_cast<double>(cpu_experts),
                0.05 * static_cast<double>(cpu_experts));
    EXPECT_GT(missed, 0u);
    const uint64_t moved = model_->Traffic().pcie_bytes;
    // Read in place, a large chunk fetches every miss; else those that have routes.
    EXPECT_GE(moved + 64, bytes);
    if (!reads) {
      EXPECT_NEAR(static_cast<double>(moved), static_cast<double>(bytes), 64);
    }
    model_->ResetCounts();
    EXPECT_EQ(model_->counts()->misses(), 0u);
    EXPECT_EQ(model_->Traffic().pcie_bytes, 0u);
  }
}

TEST_F(GpuPromptTest, PromptMemoryIsWhatThePlanSaid) {
  for (const double percent : {100.0, 0.0}) {
    const auto needs = model::PlanGpuModel(manifest_, spec_, *store_, options_);
    ASSERT_TRUE(needs.ok());
    ASSERT_NO_FATAL_FAILURE(Load(percent));
    Run(model_.get(), {kPrompt});
    const auto planned = static_cast<double>(needs->dense_bytes + needs->kv_bytes + needs->workspace_bytes +
                                             placement_.bank_bytes + (percent < 100 ? needs->wave_bytes : 0));
    const auto peak = static_cast<double>(ledger_->peak_bytes(DeviceId(0), cuda::MemoryKind::kDevice));
    EXPECT_LE(peak, planned * 1.02) << percent;
    EXPECT_GE(peak, planned * 0.98) << percent;
    model_.reset();
    EXPECT_EQ(ledger_->bytes(DeviceId(0), cuda::MemoryKind::kDevice), 0u);
  }
}

}  // namespace
}  // namespace bellhop::test
