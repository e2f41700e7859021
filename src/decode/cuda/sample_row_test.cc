// The kernels' code as host threads run it.
#include "decode/cuda/sample_row.h"

#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <thread>

#include "decode/cuda/sample_case_for_test.h"

namespace bellhop::decode {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ThreadGroup {
 public:
  ThreadGroup(int32_t rank, int32_t size, std::barrier<>* barrier) : rank_(rank), size_(size), barrier_(barrier) {}
  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  void Sync() const { barrier_->arrive_and_wait(); }

 private:
  int32_t rank_, size_;
  std::barrier<>* barrier_;
};

struct RowScratch {
  ChunkScratch chunk;
  SampleScratch row;
};

template <typename Group>
void RunRow(const Group& group, const SampleArgs& args, ChunkStats* stats, float* saved, RowScratch* scratch) {
  const RowView view{args.logits, args.params->allow, args.vocab};
  for (int32_t chunk = 0; chunk < SampleChunks(args.vocab); ++chunk) {
    group.Sync();
    ScanChunk(group, view, chunk, &scratch->chunk, &stats[chunk]);
  }
  group.Sync();
  SampleRow(group, args, 0, stats, saved, &scratch->row);
}

DeviceSample SampleWith(int32_t threads, const SampleSetting& setting, std::vector<float> logits, uint64_t position,
                        const std::vector<uint64_t>& mask, int32_t max_edits = kCaseMaxEdits) {
  const auto before = logits;
  DeviceSampling params;
  std::vector<TokenBias> biases(kCaseMaxEdits);
  std::vector<TokenCount> penalized(kCaseMaxEdits);
  std::vector<uint64_t> mask_copy(mask.size());
  WriteSetting(setting, 5, position, mask, {&params, biases.data(), penalized.data(), mask_copy.data()});
  DeviceSample result;
  SampleArgs args{.logits = logits.data(),
                  .rows = 1,
                  .vocab = static_cast<int32_t>(logits.size()),
                  .params = &params,
                  .results = &result,
                  .max_edits = max_edits};
  std::vector<ChunkStats> stats(static_cast<size_t>(SampleChunks(args.vocab)));
  std::vector<float> saved(kCaseMaxEdits);
  const auto scratch = std::make_unique<RowScratch>();
  if (threads == 1) {
    RunRow(cuda::SoloGroup(), args, stats.data(), saved.data(), scratch.get());
  } else {
    std::barrier<> barrier(threads);
    std::vector<std::thread> group;
    for (int32_t t = 0; t < threads; ++t) {
      group.emplace_back(
          [&, t] { RunRow(ThreadGroup(t, threads, &barrier), args, stats.data(), saved.data(), scratch.get()); });
    }
    for (std::thread& thread : group) thread.join();
  }
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_EQ(FloatBits(logits[i]), FloatBits(before[i])) << i;
  return result;
}

void ExpectSameAsSampler(int32_t threads, int32_t vocab, int positions) {
  const std::vector<SampleSetting> settings = SampleSettings(vocab, static_cast<uint32_t>(vocab));
  const std::vector<uint64_t> mask = MaskFor(vocab, 3);
  for (int shape = 0; shape < kRowShapes; ++shape) {
    const std::vector<float> logits = RowOfShape(static_cast<RowShape>(shape), vocab, 11);
    for (const SampleSetting& setting : settings) {
      for (uint64_t position = 0; position < static_cast<uint64_t>(positions); ++position) {
        const Result<TokenId> want = HostToken(setting, logits, 5, position, mask);
        ASSERT_TRUE(want.ok()) << want.status().ToString();
        const DeviceSample got = SampleWith(threads, setting, logits, position, mask);
        ASSERT_EQ(got.id, *want) << setting.name << ", shape " << shape << ", vocabulary " << vocab;
        ASSERT_EQ(got.flags, 0u);
        const Result<float> logprob = TopLogprobs(logits, *want, {});
        ASSERT_TRUE(logprob.ok());
        ASSERT_NEAR(got.logprob, *logprob, 1e-5) << setting.name << ", shape " << shape;
      }
    }
  }
}

TEST(SampleRowTest, OneThreadDrawsWhatSamplerDraws) {
  ExpectSameAsSampler(1, 1000, 6);
  ExpectSameAsSampler(1, 9000, 2);
}

TEST(SampleRowTest, ThreadsTogetherDrawWhatSamplerDraws) { ExpectSameAsSampler(3, 1000, 1); }

TEST(SampleRowTest, TinyVocabularies) {
  for (int32_t vocab : {1, 2, 63, 65}) {
    const std::vector<float> logits = RowOfShape(RowShape::kTies, vocab, 4);
    const std::vector<uint64_t> mask = {~uint64_t{0}, ~uint64_t{0}};  // bits beyond the vocabulary do not count
    for (int32_t k : {0, 1, 40, 600}) {
      for (uint64_t position = 0; position < 50; ++position) {
        const SampleSetting setting{"tiny", {.temperature = 2, .min_p = 0, .top_k = k, .seed = 9}, true};
        const Result<TokenId> want = HostToken(setting, logits, 5, position, mask);
        ASSERT_TRUE(want.ok());
        EXPECT_EQ(SampleWith(1, setting, logits, position, mask).id, *want) << vocab << " " << k;
      }
    }
  }
}

TEST(SampleRowTest, PenaltiesDependOnTheSign) {
  SampleSetting setting{"", {.repeat_penalty = 2, .greedy = true}};
  setting.history = {0, 0};
  EXPECT_EQ(SampleWith(1, setting, {0.75f, 0.5f, 0}, 0, {0}).id, 1);
  EXPECT_EQ(SampleWith(1, setting, {-0.5f, -0.75f, -2}, 0, {0}).id, 1);
  EXPECT_EQ(SampleWith(1, setting, {-0.5f, -1.25f, -2}, 0, {0}).id, 0);
  setting.params.repeat_penalty = 1;
  setting.params.frequency_penalty = 0.25f;
  setting.params.presence_penalty = 0.125f;
  EXPECT_EQ(SampleWith(1, setting, {1, 0.5f, 0}, 0, {0}).id, 1);  // 1 - 2 * 0.25 - 0.125 = 0.375
  EXPECT_EQ(SampleWith(1, setting, {1, 0.25f, 0}, 0, {0}).id, 0);
}

TEST(SampleRowTest, FaultsAreFlagged) {
  constexpr int32_t kVocab = 9000;
  const std::vector<float> good = RowOfShape(RowShape::kNormal, kVocab, 1);
  std::vector<uint64_t> mask = MaskFor(kVocab, 1);
  for (bool greedy : {false, true}) {
    SampleSetting setting{"", {.greedy = greedy}};
    for (float bad : {kNan, kInf}) {
      for (size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{8999}}) {
        std::vector<float> row = good;
        row[at] = bad;
        setting.masked = false;
        const DeviceSample open = SampleWith(1, setting, row, 0, mask);
        EXPECT_EQ(open.flags, kSampleFault | kSampleNoLogprob);
        EXPECT_EQ(open.id, -1);
        setting.masked = true;
        mask[at / 64] |= uint64_t{1} << at % 64;
        EXPECT_EQ(SampleWith(1, setting, row, 0, mask).flags, kSampleFault | kSampleNoLogprob);
        mask[at / 64] &= ~(uint64_t{1} << at % 64);
        const DeviceSample hidden = SampleWith(1, setting, row, 0, mask);  // only what is allowed matters
        EXPECT_EQ(hidden.flags, kSampleNoLogprob);
        EXPECT_EQ(hidden.id, *HostToken(setting, row, 5, 0, mask));
      }
    }
    setting.masked = false;
    const std::vector<float> nothing(kVocab, -kInf);
    EXPECT_EQ(SampleWith(1, setting, nothing, 0, mask).flags, kSampleFault | kSampleNoLogprob);
    setting.masked = true;
    EXPECT_EQ(SampleWith(1, setting, good, 0, std::vector<uint64_t>(mask.size())).flags, kSampleNothingAllowed);
    setting.masked = false;
    setting.params.logit_bias = {{5, 1}, {6, 1}};
    EXPECT_EQ(SampleWith(1, setting, good, 0, mask, 2).flags, 0u);
    EXPECT_EQ(SampleWith(1, setting, good, 0, mask, 1).flags, kSampleTooManyEdits);
    setting.params.logit_bias = {{5, 3e38f}, {5, 3e38f}};  // a fault that biases make
    const DeviceSample overflown = SampleWith(1, setting, good, 0, mask);
    EXPECT_EQ(overflown.flags, kSampleFault);
    EXPECT_EQ(overflown.id, -1);
  }
}

}  // namespace
}  // namespace bellhop::decode
