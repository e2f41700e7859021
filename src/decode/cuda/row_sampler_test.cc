// RowSampler against Sampler: whole sequences, whose penalties see what was drawn. Without a GPU there is nothing to
// compare.
#include "decode/cuda/row_sampler.h"

#include <gtest/gtest.h>

#include <random>

namespace bellhop::decode {
namespace {

constexpr int32_t kVocab = 5000, kRows = 6, kSteps = 200;

std::vector<SamplingParams> Settings() {
  std::vector<SamplingParams> all(kRows);
  all[0].greedy = true;
  all[1].seed = 7;
  all[2] = {.temperature = 1.5f, .top_p = 1, .min_p = 0, .top_k = 0, .repeat_penalty = 1.3f, .seed = 8};
  all[3] = {.top_k = 0, .presence_penalty = 0.5f, .frequency_penalty = 0.3f, .repeat_last_n = 17, .seed = 9};
  all[4] = {.repeat_penalty = 1.1f, .repeat_last_n = -1, .seed = 10};
  all[5] = {.temperature = 2, .seed = 11, .logit_bias = {{9, 3.0f}, {4, -2.0f}, {9, 1.0f}}};
  return all;
}

TEST(RowSamplerTest, SequencesAreThoseOfSampler) {
  cuda::MemoryLedger ledger;
  auto device = cuda::Device::Open(DeviceId(0), &ledger);
  if (!device.ok()) {
    ASSERT_EQ(device.status().code(), StatusCode::kNotFound) << device.status().ToString();
    GTEST_SKIP() << device.status().ToString();
  }
  auto stream = cuda::Stream::Create(device->get());
  ASSERT_TRUE(stream.ok());
  auto made = RowSampler::Create(device->get(), kRows, kVocab);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(ledger.bytes(DeviceId(0), cuda::MemoryKind::kDevice), RowSampler::DeviceBytes(kRows, kVocab));
  RowSampler& rows = **made;
  constexpr size_t kBytes = sizeof(float) * kRows * kVocab;
  auto logits = cuda::DeviceBuffer::Create(device->get(), kBytes, MemoryTag::kWorkspace);
  auto pinned = cuda::PinnedBuffer::Create(device->get(), kBytes, MemoryTag::kStaging);
  ASSERT_TRUE(logits.ok() && pinned.ok());
  std::vector<Sampler> host, device_side;
  for (const SamplingParams& params : Settings()) {
    for (auto* to : {&host, &device_side}) {
      auto sampler = Sampler::Create(params, kVocab);
      ASSERT_TRUE(sampler.ok()) << sampler.status().ToString();
      to->push_back(std::move(*sampler));
    }
  }
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> values(kRows * kVocab);
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (float& value : values) value = normal(random);
    std::copy(values.begin(), values.end(), pinned->as<float>().data());
    ASSERT_TRUE(cuda::CopyToDevice(logits->bytes(), {pinned->bytes().data(), kBytes}, *stream).ok());
    for (int32_t row = 0; row < kRows; ++row) {
      ASSERT_TRUE(rows.SetRow(row, device_side[static_cast<size_t>(row)], static_cast<uint64_t>(row), step));
    }
    ASSERT_TRUE(rows.Submit(logits->as<float>().data(), kVocab, kRows, *stream).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    for (int32_t row = 0; row < kRows; ++row) {
      const auto r = static_cast<size_t>(row);
      auto want = host[r].Sample({values.data() + r * kVocab, kVocab}, static_cast<uint64_t>(row), step);
      ASSERT_TRUE(want.ok());
      ASSERT_EQ(rows.result(row).id, *want) << "row " << row << ", step " << step;
      host[r].Accept(*want);
      device_side[r].Accept(rows.result(row).id);
    }
  }
}

TEST(RowSamplerTest, MoreEditsThanThereIsRoomForAreRefused) {
  cuda::MemoryLedger ledger;
  auto device = cuda::Device::Open(DeviceId(0), &ledger);
  if (!device.ok()) GTEST_SKIP() << device.status().ToString();
  auto rows = RowSampler::Create(device->get(), 1, kVocab);
  ASSERT_TRUE(rows.ok());
  auto sampler = Sampler::Create({.repeat_penalty = 1.1f, .repeat_last_n = -1}, kVocab);
  ASSERT_TRUE(sampler.ok());
  for (TokenId id = 0; id < RowSampler::kMaxEdits; ++id) sampler->Accept(id);
  EXPECT_TRUE((*rows)->SetRow(0, *sampler, 0, 0));
  sampler->Accept(RowSampler::kMaxEdits);
  EXPECT_FALSE((*rows)->SetRow(0, *sampler, 0, 0));
}

}  // namespace
}  // namespace bellhop::decode
