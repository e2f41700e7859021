#include "decode/cuda/row_sampler.h"

namespace bellhop::decode {

uint64_t RowSampler::DeviceBytes(int32_t rows, int32_t vocab) {
  return static_cast<uint64_t>(rows) * sizeof(DeviceSampling) + SampleWorkspaceBytes(rows, vocab, kMaxEdits);
}

uint64_t RowSampler::HostBytes(int32_t rows) {
  return static_cast<uint64_t>(rows) *
         (sizeof(DeviceSampling) + sizeof(DeviceSample) + kMaxEdits * (sizeof(TokenBias) + sizeof(TokenCount)));
}

Result<std::unique_ptr<RowSampler>> RowSampler::Create(cuda::Device* device, int32_t rows, int32_t vocab) {
  using cuda::DeviceBuffer, cuda::PinnedBuffer;
  constexpr MemoryTag kPinned = MemoryTag::kStaging, kDevice = MemoryTag::kWorkspace;
  const auto n = static_cast<uint64_t>(rows);
  auto sampler = std::unique_ptr<RowSampler>(new RowSampler(device, rows, vocab));
  RowSampler& s = *sampler;
  BELLHOP_TRY_ASSIGN(s.pinned_params_, PinnedBuffer::Create(device, n * sizeof(DeviceSampling), kPinned));
  BELLHOP_TRY_ASSIGN(s.biases_, PinnedBuffer::Create(device, n * kMaxEdits * sizeof(TokenBias), kPinned));
  BELLHOP_TRY_ASSIGN(s.penalized_, PinnedBuffer::Create(device, n * kMaxEdits * sizeof(TokenCount), kPinned));
  BELLHOP_TRY_ASSIGN(s.results_, PinnedBuffer::Create(device, n * sizeof(DeviceSample), kPinned));
  BELLHOP_TRY_ASSIGN(s.params_, DeviceBuffer::Create(device, n * sizeof(DeviceSampling), kDevice));
  BELLHOP_TRY_ASSIGN(s.workspace_, DeviceBuffer::Create(device, SampleWorkspaceBytes(rows, vocab, kMaxEdits), kDevice));
  for (int32_t row = 0; row < rows; ++row) s.SetGreedy(row);
  return sampler;
}

bool RowSampler::SetRow(int32_t row, Sampler& sampler, uint64_t sequence, uint64_t position) {
  TokenBias* const biases = biases_.as<TokenBias>().data() + int64_t{row} * kMaxEdits;
  TokenCount* const penalized = penalized_.as<TokenCount>().data() + int64_t{row} * kMaxEdits;
  const SamplingParams& from = sampler.params();
  SetGreedy(row);
  if (from.logit_bias.size() > static_cast<size_t>(kMaxEdits)) return false;
  DeviceSampling made = MakeDeviceSampling(from, sequence, position);
  made.biases = biases;
  made.biases_used = CopyBiases(from, biases);
  made.penalized = penalized;
  made.penalized_used = sampler.CopyPenalized(penalized, kMaxEdits - made.biases_used);
  if (made.penalized_used < 0) return false;
  params()[row] = made;
  return true;
}

void RowSampler::SetGreedy(int32_t row) { params()[row] = DeviceSampling{.greedy = 1}; }

Status RowSampler::Submit(float* logits, int64_t stride, int32_t rows, const cuda::Stream& stream) {
  if (rows < 1 || rows > rows_) return Internal("{} rows for a sampler of {}", rows, rows_);
  const size_t bytes = static_cast<size_t>(rows) * sizeof(DeviceSampling);
  BELLHOP_TRY(cuda::CopyToDevice({params_.bytes().data(), bytes}, {pinned_params_.bytes().data(), bytes}, stream));
  return Launch({.logits = logits,
                 .stride = stride,
                 .rows = rows,
                 .vocab = vocab_,
                 .params = params_.as<DeviceSampling>().data(),
                 .results = results(),
                 .max_edits = kMaxEdits,
                 .workspace = workspace_.bytes().data()},
                stream);
}

}  // namespace bellhop::decode
