// The whole model on a GPU: long runs without allocation, rows that do not see each other, a CPU half that fails, and
// memory as planned. Without a GPU the tests are skipped.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/counting_new_for_test.h"
#include "cuda/device_info.h"
#include "cuda/memory_ledger.h"
#include "engine/device_sampler.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/manifest_builder.h"
#include "model/arch/registry.h"
#include "model/gpu_model.h"
#include "moe/doorbell_service.h"
#include "plan/gpu_placement.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

using model::SequenceState;
using model::StepRow;

constexpr int32_t kRows = 32, kContext = 512;

// Passes misses on; can be told to hang or to fail.
struct Fault {
  std::atomic<bool> hang{false}, fail{false}, entered{false};
};
class FaultyRunner final : public moe::MissRunner {
 public:
  FaultyRunner(moe::MissRunner* inner, Fault* fault) : inner_(inner), fault_(fault) {}
  bool RunMisses(const moe::MissRequest& request) override {
    fault_->entered = true;
    while (fault_->hang) std::this_thread::yield();
    return !fault_->fail && inner_->RunMisses(request);
  }

 private:
  moe::MissRunner* inner_;
  Fault* fault_;
};

class GpuModelTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto devices = cuda::ListDevices();
    if (!devices.ok()) GTEST_SKIP() << devices.status().ToString();
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
    options_.base = {.max_rows = kRows, .context_tokens = kContext, .sequences = kRows};
    options_.deadline_ns = 20'000'000'000;
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
    std::vector<std::string> notes;
    auto model =
        model::CreateGpuModel(manifest_, spec_, *store_, placement_, pool_.get(), sys::DetectCpu(), options_, &notes);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = std::move(*model);
    logits_.assign(static_cast<size_t>(kRows * spec_.vocab), 0.0f);
  }

  Status Step(HostSpan<const StepRow> rows) {
    for (const StepRow& row : rows) BELLHOP_TRY(row.sequence->Reserve(1));
    const Status status =
        model_->Forward(moe::NumericClass::kDecode, rows, {logits_.data(), kRows, spec_.vocab, spec_.vocab});
    for (const StepRow& row : rows) row.sequence->Accept(status.ok() ? 1 : 0);
    return status;
  }
  Status Step(SequenceState* sequence, TokenId token) {
    const StepRow row{sequence, sequence->length(), token, true};
    return Step({&row, 1});
  }
  TokenId Token(uint64_t n) const {
    return static_cast<TokenId>((n * 6364136223846793005u + 1442695040888963407u) >> 33) %
           static_cast<int32_t>(spec_.vocab);
  }

  std::optional<formats::GgufModel> files_;
  manifest::Manifest manifest_;
  model::ModelSpec spec_;
  std::unique_ptr<store::ExpertStore> store_;
  std::unique_ptr<sys::WorkerPool> pool_;
  model::GpuModelOptions options_;
  plan::GpuPlacement placement_;
  std::optional<cuda::MemoryLedger> ledger_;  // outlives the model
  std::unique_ptr<model::StepModel> model_;
  std::vector<float> logits_;
};

TEST_F(GpuModelTest, TenThousandStepsAllocateNothing) {
  ASSERT_NO_FATAL_FAILURE(Load(50));
  auto sequence = model_->NewSequence();
  uint64_t steps = 0;
  const auto step = [&]() -> Status {
    if (sequence->length() == kContext) sequence->Reset();
    return Step(sequence.get(), Token(steps++));
  };
  for (int i = 0; i < kContext + 8; ++i) ASSERT_TRUE(step().ok());
  const int64_t before = AllocationCount();
  const uint64_t charges = ledger_->charges();
  Status status;
  for (int i = 0; i < 10'000 && status.ok(); ++i) status = step();
  const int64_t allocations = AllocationCount() - before;
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(ledger_->charges(), charges);
  const moe::RouteCounts& counts = *model_->counts();
  const uint64_t routes = steps * 4 * 4;  // layers, experts of a row
  EXPECT_EQ(counts.hits() + counts.misses(), routes);
  EXPECT_GT(counts.hits(), routes / 10);
  EXPECT_GT(counts.misses(), routes / 10);
  EXPECT_GT(model_->Traffic().rings, 0u);
  EXPECT_EQ(model_->Traffic().rings + model_->Traffic().zero_cold_layers, steps * 4);
}

TEST_F(GpuModelTest, ARowDoesNotSeeTheOthers) {
  constexpr int kSteps = 6;
  for (const double percent : {100.0, 50.0}) {
    ASSERT_NO_FATAL_FAILURE(Load(percent));
    std::vector<std::unique_ptr<SequenceState>> sequences;
    for (int32_t i = 0; i < kRows; ++i) sequences.push_back(model_->NewSequence());
    // Sequences of different lengths.
    const auto begin = [&](int32_t i) {
      SequenceState* const sequence = sequences[static_cast<size_t>(i)].get();
      sequence->Reset();
      for (int32_t t = 0; t < i % 7 * 11; ++t) {
        ASSERT_TRUE(Step(sequence, Token(static_cast<uint64_t>(1000 * i + t))).ok());
      }
    };
    const auto row = [&](int32_t i, int t) {
      SequenceState* const sequence = sequences[static_cast<size_t>(i)].get();
      return StepRow{sequence, sequence->length(), Token(static_cast<uint64_t>(1000 * i + 500 + t)), true};
    };
    const auto vocab = static_cast<size_t>(spec_.vocab);
    std::vector<float> alone;  // [row][step][vocab]
    for (int32_t i = 0; i < kRows; ++i) {
      begin(i);
      for (int t = 0; t < kSteps; ++t) {
        const StepRow one = row(i, t);
        ASSERT_TRUE(Step({&one, 1}).ok());
        alone.insert(alone.end(), logits_.begin(), logits_.begin() + static_cast<std::ptrdiff_t>(vocab));
      }
    }
    for (const int32_t together : {2, 4, 8, 16, 32, 5, 31}) {
      int different = 0;
      for (int32_t first = 0; first + together <= kRows; first += together) {
        for (int32_t i = first; i < first + together; ++i) begin(i);
        for (int t = 0; t < kSteps; ++t) {
          std::vector<StepRow> rows;
          for (int32_t i = first; i < first + together; ++i) rows.push_back(row(i, t));
          ASSERT_TRUE(Step(rows).ok());
          for (int32_t m = 0; m < together; ++m) {
            const size_t expected = (static_cast<size_t>(first + m) * kSteps + static_cast<size_t>(t)) * vocab;
            different +=
                std::memcmp(&alone[expected], &logits_[static_cast<size_t>(m) * vocab], vocab * sizeof(float)) != 0;
          }
        }
      }
      EXPECT_EQ(different, 0) << together << " rows at " << percent << " %";
    }
  }
}

// Rows of which some are sampled on the device and one, the last, on the host, beside the same rows all on the host.
TEST_F(GpuModelTest, TheDeviceSamplesWhatTheHostWould) {
  constexpr int32_t kTogether = 5;
  ASSERT_NO_FATAL_FAILURE(Load(50));
  auto made = engine::DeviceSampler::Create(*model_, kTogether);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ASSERT_NE(*made, nullptr);
  engine::DeviceSampler& device = **made;
  std::vector<decode::SamplingParams> settings(kTogether);
  settings[0].greedy = true;
  settings[1].repeat_penalty = 1.2f;
  settings[2] = {.temperature = 1.3f, .top_p = 1, .min_p = 0, .top_k = 0, .frequency_penalty = 0.4f, .seed = 5};
  settings[3] = {.seed = 6, .logit_bias = {{7, 2.0f}, {3, -1.0f}, {7, 0.5f}}};
  std::vector<decode::Sampler> samplers, twins;
  std::vector<std::unique_ptr<SequenceState>> sequences, others;
  for (const decode::SamplingParams& params : settings) {
    samplers.push_back(std::move(decode::Sampler::Create(params, static_cast<int32_t>(spec_.vocab)).value()));
    twins.push_back(std::move(decode::Sampler::Create(params, static_cast<int32_t>(spec_.vocab)).value()));
    sequences.push_back(model_->NewSequence());
    others.push_back(model_->NewSequence());
  }
  const auto vocab = static_cast<size_t>(spec_.vocab);
  std::vector<float> last(vocab);
  std::vector<TokenId> next(kTogether, 1);
  int64_t allocations = 0;
  for (int t = 0; t < 200; ++t) {
    std::vector<StepRow> rows(kTogether), all(kTogether);
    const int64_t before = AllocationCount();
    for (int32_t m = 0; m < kTogether; ++m) {
      const auto i = static_cast<size_t>(m);
      ASSERT_TRUE(sequences[i]->Reserve(1).ok());
      rows[i] = {sequences[i].get(), sequences[i]->length(), next[i], m == kTogether - 1};
      device.rows().SetGreedy(m);
      ASSERT_TRUE(rows[i].want_logits || device.rows().SetRow(m, samplers[i], i, static_cast<uint64_t>(t)));
    }
    const Status status = model_->ForwardAndSample(rows, {last.data(), 1, spec_.vocab, spec_.vocab}, &device);
    if (t > 16) allocations += AllocationCount() - before;
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t i = 0; i < kTogether; ++i) {
      sequences[i]->Accept(1);
      all[i] = {others[i].get(), others[i]->length(), next[i], true};
    }
    ASSERT_TRUE(Step(all).ok());
    EXPECT_EQ(std::memcmp(last.data(), &logits_[(kTogether - 1) * vocab], vocab * sizeof(float)), 0) << t;
    for (size_t i = 0; i < kTogether; ++i) {
      auto want = twins[i].Sample({&logits_[i * vocab], vocab}, i, static_cast<uint64_t>(t));
      ASSERT_TRUE(want.ok());
      if (!rows[i].want_logits) {
        ASSERT_EQ(device.Token(static_cast<int32_t>(i)).value(), *want) << "row " << i << ", step " << t;
      }
      samplers[i].Accept(*want);
      twins[i].Accept(*want);
      next[i] = *want;
    }
  }
  EXPECT_EQ(allocations, 0);
}

TEST_F(GpuModelTest, ACpuThatDoesNotAnswerIsAnErrorWithinTheDeadline) {
  Fault fault;
  options_.wrap_runner = [&](moe::MissRunner* inner) { return std::make_unique<FaultyRunner>(inner, &fault); };
  options_.deadline_ns = 200'000'000;
  ASSERT_NO_FATAL_FAILURE(Load(50));
  std::vector<float> expected;
  {
    auto sequence = model_->NewSequence();
    ASSERT_TRUE(Step(sequence.get(), Token(1)).ok());
    expected = logits_;
    fault.hang = true;
    const auto start = std::chrono::steady_clock::now();
    Status status;
    for (uint64_t t = 2; status.ok() && t < 100; ++t) status = Step(sequence.get(), Token(t));
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(status.code(), StatusCode::kCuda) << status.ToString();
    EXPECT_LT(waited.count(), 5.0);
    EXPECT_TRUE(fault.entered);
    // The model stays unusable, and says why.
    EXPECT_EQ(Step(sequence.get(), Token(1)).ToString(), status.ToString());
    fault.hang = false;
  }
  // The process goes on, with a new model.
  ASSERT_NO_FATAL_FAILURE(Load(50));
  auto sequence = model_->NewSequence();
  ASSERT_TRUE(Step(sequence.get(), Token(1)).ok());
  EXPECT_EQ(logits_, expected);
}

TEST_F(GpuModelTest, ACpuThatFailsInTheMiddleOfAStepIsAnError) {
  Fault fault;
  options_.wrap_runner = [&](moe::MissRunner* inner) { return std::make_unique<FaultyRunner>(inner, &fault); };
  ASSERT_NO_FATAL_FAILURE(Load(0));
  auto sequence = model_->NewSequence();
  ASSERT_TRUE(Step(sequence.get(), Token(1)).ok());
  fault.fail = true;
  const auto start = std::chrono::steady_clock::now();
  const Status status = Step(sequence.get(), Token(2));
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  EXPECT_FALSE(status.ok());
  EXPECT_LT(waited.count(), 5.0);  // long before the deadline
  fault.fail = false;
  EXPECT_FALSE(Step(sequence.get(), Token(3)).ok());
}

TEST_F(GpuModelTest, MemoryIsWhatThePlanSaid) {
  for (const double percent : {0.0, 50.0, 100.0}) {
    const auto needs = model::PlanGpuModel(manifest_, spec_, *store_, options_);
    ASSERT_TRUE(needs.ok());
    ASSERT_NO_FATAL_FAILURE(Load(percent));
    auto sequence = model_->NewSequence();
    for (uint64_t t = 0; t < 64; ++t) ASSERT_TRUE(Step(sequence.get(), Token(t)).ok());
    const auto planned = static_cast<double>(needs->dense_bytes + needs->kv_bytes + needs->workspace_bytes +
                                             placement_.bank_bytes + (percent < 100 ? needs->wave_bytes : 0));
    const auto peak = static_cast<double>(ledger_->peak_bytes(DeviceId(0), cuda::MemoryKind::kDevice));
    EXPECT_LE(peak, planned * 1.02) << percent;
    EXPECT_GE(peak, planned * 0.98) << percent;
    const auto used = [&](MemoryTag tag) {
      return static_cast<double>(ledger_->bytes(DeviceId(0), cuda::MemoryKind::kDevice, tag));
    };
    const auto banks = static_cast<double>(placement_.bank_bytes);
    EXPECT_NEAR(used(MemoryTag::kExpertWeights), banks, banks * 0.02) << percent;
    EXPECT_EQ(used(MemoryTag::kDenseWeights), static_cast<double>(needs->dense_bytes));
    EXPECT_EQ(used(MemoryTag::kKvCache), static_cast<double>(needs->kv_bytes));
    sequence.reset();
    model_.reset();
    EXPECT_EQ(ledger_->bytes(DeviceId(0), cuda::MemoryKind::kDevice), 0u);
  }
}

}  // namespace
}  // namespace bellhop::test
