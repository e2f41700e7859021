// The sampling kernels against Sampler: one captured graph for each shape, replayed with other parameters and logits.
// Without a GPU there is nothing to compare (sample_row_test.cc runs the kernels' code on the host).
#include "decode/cuda/sampler_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "cuda/cuda_try.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "decode/cuda/sample_case_for_test.h"

namespace bellhop::decode {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint64_t kSequence = 12;

// Everything that a graph reads and writes: logits on the device, the rest pinned and mapped.
struct StepMemory {
  int32_t rows = 0, vocab = 0;
  int64_t stride = 0;
  size_t mask_words = 0;
  cuda::PinnedBuffer host_logits, params, biases, penalized, masks, results;
  cuda::DeviceBuffer logits, device_params, workspace;

  static Result<StepMemory> Create(cuda::Device* device, int32_t rows, int32_t vocab) {
    using cuda::DeviceBuffer, cuda::PinnedBuffer;
    constexpr MemoryTag kTag = MemoryTag::kStaging;
    StepMemory m;
    m.rows = rows;
    m.vocab = vocab;
    m.stride = vocab + 3;
    m.mask_words = (static_cast<size_t>(vocab) + 63) / 64;
    const auto n = static_cast<size_t>(rows);
    const size_t logits_bytes = n * static_cast<size_t>(m.stride) * sizeof(float);
    BELLHOP_TRY_ASSIGN(m.host_logits, PinnedBuffer::Create(device, logits_bytes, kTag));
    BELLHOP_TRY_ASSIGN(m.logits, DeviceBuffer::Create(device, logits_bytes, MemoryTag::kWorkspace));
    BELLHOP_TRY_ASSIGN(m.params, PinnedBuffer::Create(device, n * sizeof(DeviceSampling), kTag));
    BELLHOP_TRY_ASSIGN(m.device_params,
                       DeviceBuffer::Create(device, n * sizeof(DeviceSampling), MemoryTag::kWorkspace));
    BELLHOP_TRY_ASSIGN(m.biases, PinnedBuffer::Create(device, n * kCaseMaxEdits * sizeof(TokenBias), kTag));
    BELLHOP_TRY_ASSIGN(m.penalized, PinnedBuffer::Create(device, n * kCaseMaxEdits * sizeof(TokenCount), kTag));
    BELLHOP_TRY_ASSIGN(m.masks, PinnedBuffer::Create(device, n * m.mask_words * sizeof(uint64_t), kTag));
    BELLHOP_TRY_ASSIGN(m.results, PinnedBuffer::Create(device, n * sizeof(DeviceSample), kTag));
    BELLHOP_TRY_ASSIGN(m.workspace, DeviceBuffer::Create(device, SampleWorkspaceBytes(rows, vocab, kCaseMaxEdits),
                                                         MemoryTag::kWorkspace));
    return m;
  }
  float* HostRow(int32_t row) { return host_logits.as<float>().data() + row * stride; }
  void SetRow(int32_t row, const std::vector<float>& to) { std::copy(to.begin(), to.end(), HostRow(row)); }
  SampleRowMemory Memory(int32_t row) {
    const auto r = static_cast<size_t>(row);
    return {params.as<DeviceSampling>().data() + r, biases.as<TokenBias>().data() + r * kCaseMaxEdits,
            penalized.as<TokenCount>().data() + r * kCaseMaxEdits, masks.as<uint64_t>().data() + r * mask_words};
  }
  const DeviceSample& result(int32_t row) { return results.as<DeviceSample>().data()[row]; }
  SampleArgs args() {
    return {.logits = logits.as<float>().data(),
            .stride = stride,
            .rows = rows,
            .vocab = vocab,
            .params = device_params.as<DeviceSampling>().data(),
            .results = results.as<DeviceSample>().data(),
            .max_edits = kCaseMaxEdits,
            .workspace = workspace.bytes().data()};
  }
};

class SamplerKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = cuda::Device::Open(DeviceId(0), &ledger_);
    if (!opened.ok()) {
      ASSERT_EQ(opened.status().code(), StatusCode::kNotFound) << opened.status().ToString();
      GTEST_SKIP() << "no GPU: " << opened.status().ToString();
    }
    device_ = std::move(*opened);
  }
  // Copies the logits there and back around the kernels.
  Status Submit(StepMemory* memory, const cuda::Stream& stream) {
    BELLHOP_TRY(cuda::CopyToDevice(memory->logits.bytes(), memory->host_logits.bytes(), stream));
    BELLHOP_TRY(cuda::CopyToDevice(memory->device_params.bytes(), memory->params.bytes(), stream));
    BELLHOP_CUDA_CHECK(device_.get(), LaunchSample(memory->args(), stream.queue()));
    return cuda::CopyToHost(memory->host_logits.bytes(), memory->logits.bytes(), stream);
  }
  void CompareWithSampler(int32_t vocab, int32_t rows);

  cuda::MemoryLedger ledger_;
  std::unique_ptr<cuda::Device> device_;
};

void SamplerKernelsTest::CompareWithSampler(int32_t vocab, int32_t rows) {
  const auto stream = cuda::Stream::Create(device_.get());
  ASSERT_TRUE(stream.ok()) << stream.status().ToString();
  auto made = StepMemory::Create(device_.get(), rows, vocab);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  StepMemory& memory = *made;
  const auto graph = cuda::Graph::Capture(*stream, [&] { return Submit(&memory, *stream); });
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto exec = cuda::GraphExec::Create(*graph, *stream);
  ASSERT_TRUE(exec.ok()) << exec.status().ToString();

  const std::vector<SampleSetting> settings = SampleSettings(vocab, static_cast<uint32_t>(rows));
  const std::vector<uint64_t> mask = MaskFor(vocab, static_cast<uint32_t>(rows));
  std::vector<std::vector<float>> shapes;
  for (int s = 0; s < kRowShapes; ++s) shapes.push_back(RowOfShape(static_cast<RowShape>(s), vocab, 21));
  // All settings on all shapes, several positions for each where rows are short.
  const size_t cases = settings.size() * shapes.size() * (vocab > 10000 ? 1 : 8);
  for (size_t first = 0; first < cases; first += static_cast<size_t>(rows)) {
    const auto case_of = [&](int32_t row) { return (first + static_cast<size_t>(row)) % cases; };
    for (int32_t row = 0; row < rows; ++row) {
      const size_t c = case_of(row);
      memory.SetRow(row, shapes[c / settings.size() % shapes.size()]);
      WriteSetting(settings[c % settings.size()], kSequence, c, mask, memory.Memory(row));
    }
    ASSERT_TRUE(exec->Launch(*stream).ok());
    const Status done = stream->Synchronize();
    ASSERT_TRUE(done.ok()) << done.ToString();
    for (int32_t row = 0; row < rows; ++row) {
      const size_t c = case_of(row), shape = c / settings.size() % shapes.size();
      const SampleSetting& setting = settings[c % settings.size()];
      const Result<TokenId> want = HostToken(setting, shapes[shape], kSequence, c, mask);
      ASSERT_TRUE(want.ok()) << want.status().ToString();
      const DeviceSample& got = memory.result(row);
      ASSERT_EQ(got.id, *want) << setting.name << ", shape " << shape << ", row " << row;
      ASSERT_EQ(got.flags, 0u) << setting.name;
      const Result<float> logprob = TopLogprobs(shapes[shape], *want, {});
      ASSERT_TRUE(logprob.ok());
      ASSERT_NEAR(got.logprob, *logprob, 1e-5) << setting.name << ", shape " << shape;
      ASSERT_EQ(std::memcmp(memory.HostRow(row), shapes[shape].data(), shapes[shape].size() * sizeof(float)), 0)
          << "a row must have its values back: " << setting.name;
    }
  }
}

TEST_F(SamplerKernelsTest, DrawsWhatSamplerDrawsFromAThousand) {
  for (int32_t rows : {1, 7, 32}) CompareWithSampler(1000, rows);
}
TEST_F(SamplerKernelsTest, DrawsWhatSamplerDrawsFrom32000) {
  for (int32_t rows : {1, 7, 32}) CompareWithSampler(32000, rows);
}
TEST_F(SamplerKernelsTest, DrawsWhatSamplerDrawsFrom151936) {
  for (int32_t rows : {1, 7, 32}) CompareWithSampler(151936, rows);
}

TEST_F(SamplerKernelsTest, ManyPositionsOfTheDefaults) {
  constexpr int32_t kVocab = 32000, kRows = 32;
  const auto stream = cuda::Stream::Create(device_.get());
  ASSERT_TRUE(stream.ok());
  auto memory = StepMemory::Create(device_.get(), kRows, kVocab);
  ASSERT_TRUE(memory.ok());
  const std::vector<float> logits = RowOfShape(RowShape::kNormal, kVocab, 8);
  const SampleSetting setting{"defaults", {.temperature = 2, .top_p = 0.98f, .min_p = 0.001f, .seed = 77}};
  auto sampler = Sampler::Create(setting.params, kVocab);
  ASSERT_TRUE(sampler.ok());
  std::vector<float> row_for_host = logits;
  for (uint64_t step = 0; step < 100; ++step) {
    for (int32_t row = 0; row < kRows; ++row) {
      memory->SetRow(row, logits);
      WriteSetting(setting, static_cast<uint64_t>(row), step, {}, memory->Memory(row));
    }
    ASSERT_TRUE(Submit(&*memory, *stream).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    for (int32_t row = 0; row < kRows; ++row) {
      const Result<TokenId> want = sampler->Sample(row_for_host, static_cast<uint64_t>(row), step);
      ASSERT_TRUE(want.ok());
      ASSERT_EQ(memory->result(row).id, *want) << step << " " << row;
    }
  }
}

TEST_F(SamplerKernelsTest, FaultyRowsAreFlaggedAndOthersAreNot) {
  constexpr int32_t kVocab = 32000, kRows = 7;
  const auto stream = cuda::Stream::Create(device_.get());
  ASSERT_TRUE(stream.ok());
  auto memory = StepMemory::Create(device_.get(), kRows, kVocab);
  ASSERT_TRUE(memory.ok());
  const std::vector<float> good = RowOfShape(RowShape::kNormal, kVocab, 8);
  for (bool greedy : {false, true}) {
    const SampleSetting open{"open", {.greedy = greedy}};
    const SampleSetting masked{"masked", {.greedy = greedy}, true};
    std::vector<float> nan = good, inf = good;
    nan[kVocab - 1] = kNan;
    inf[5000] = kInf;
    const std::vector<float> nothing(kVocab, -kInf);
    std::vector<uint64_t> all(memory->mask_words, ~uint64_t{0}), none(memory->mask_words), without_last = all;
    without_last[(kVocab - 1) / 64] &= ~(uint64_t{1} << (kVocab - 1) % 64);
    const std::vector<float>* const rows[kRows] = {&good, &nan, &inf, &nothing, &good, &nan, &good};
    const SampleSetting* const settings[kRows] = {&open, &open, &masked, &open, &masked, &masked, &masked};
    const std::vector<uint64_t>* const masks[kRows] = {&all, &all, &all, &all, &none, &without_last, &without_last};
    const uint32_t flags[kRows] = {0,
                                   kSampleFault | kSampleNoLogprob,
                                   kSampleFault | kSampleNoLogprob,
                                   kSampleFault | kSampleNoLogprob,
                                   kSampleNothingAllowed,
                                   kSampleNoLogprob,
                                   0};
    for (int32_t r = 0; r < kRows; ++r) {
      memory->SetRow(r, *rows[r]);
      WriteSetting(*settings[r], kSequence, 3, *masks[r], memory->Memory(r));
    }
    ASSERT_TRUE(Submit(&*memory, *stream).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    for (int32_t r = 0; r < kRows; ++r) {
      const Result<TokenId> want = HostToken(*settings[r], *rows[r], kSequence, 3, *masks[r]);
      EXPECT_EQ(memory->result(r).flags, flags[r]) << r;
      EXPECT_EQ(memory->result(r).id, want.ok() ? *want : -1) << r;
      EXPECT_EQ(want.ok(), (flags[r] & (kSampleFault | kSampleNothingAllowed)) == 0) << r;
    }
  }
}

TEST_F(SamplerKernelsTest, RefusesSizesThatItCannotSample) {
  const auto stream = cuda::Stream::Create(device_.get());
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(LaunchSample({.rows = 1, .vocab = (1 << 21) + 1}, stream->queue()), cudaErrorInvalidValue);
  EXPECT_EQ(LaunchSample({.rows = 0, .vocab = 10}, stream->queue()), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace bellhop::decode
