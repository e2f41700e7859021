#include "kernels/cuda/attention_rig_for_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cuda/cuda_try.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr int32_t kUnseenPage = std::numeric_limits<int32_t>::max() / 2;

// The largest relative error of rounding to the type.
double Rounding(KvType type) {
  switch (type) {
    case KvType::kF32: return std::ldexp(1.0, -24);
    case KvType::kF16: return std::ldexp(1.0, -11);
    case KvType::kBF16: return std::ldexp(1.0, -8);
  }
  return 0;
}

// Mean 0, variance 1.
void FillRandom(float* x, int64_t n, std::mt19937* random) {
  std::uniform_real_distribution<float> values(-1.73f, 1.73f);
  for (int64_t i = 0; i < n; ++i) x[i] = values(*random);
}

}  // namespace

std::string AttentionCase::ToString() const {
  return "type " + std::to_string(static_cast<int>(type)) + " heads " + std::to_string(heads) + "/" +
         std::to_string(kv_heads) + " dims " + std::to_string(key_dim) + "/" + std::to_string(value_dim) + " norm " +
         std::to_string(static_cast<int>(norm)) + " rope " + std::to_string(static_cast<int>(rope)) + ":" +
         std::to_string(rope_dims) + " window " + std::to_string(window) + " terms " + std::to_string(terms) +
         (sinks ? " sinks" : "") + " rows " + std::to_string(rows.size()) + "/" + std::to_string(Launched());
}

Result<std::unique_ptr<AttentionRig>> AttentionRig::Create(cuda::Device* device, const AttentionCase& c,
                                                           uint32_t seed) {
  auto rig = std::unique_ptr<AttentionRig>(new AttentionRig(c));
  BELLHOP_TRY(rig->Allocate(device));
  std::memset(rig->host_.bytes().data(), 0xFF, rig->size_);
  *rig->active_rows() = static_cast<int32_t>(c.rows.size());
  std::mt19937 random(seed);
  FillRandom(rig->Host<float>(rig->q_norm_at_), int64_t{c.heads} * c.key_dim, &random);
  FillRandom(rig->Host<float>(rig->k_norm_at_), int64_t{c.kv_heads} * c.key_dim, &random);
  FillRandom(rig->Host<float>(rig->sinks_at_), c.heads, &random);
  std::memset(rig->Host<uint8_t>(rig->counters_at_), 0, size_t{kMaxStepRows} * c.kv_heads * 4);
  std::memset(rig->Host<uint8_t>(rig->words_at_), 0, rig->words_bytes_);
  auto* const rope = rig->Host<float>(rig->rope_at_);
  for (int32_t p = 0; p < c.max_pages * kKvPageTokens; ++p) {
    for (int32_t j = 0; j < c.rope_dims / 2; ++j) {
      const double angle = p * std::pow(10000.0, -2.0 * j / c.rope_dims);
      rope[p * c.rope_dims + 2 * j] = static_cast<float>(1.25 * std::cos(angle));
      rope[p * c.rope_dims + 2 * j + 1] = static_cast<float>(1.25 * std::sin(angle));
    }
  }
  rig->FillCache(seed + 1);
  rig->FillInputs(seed + 2);
  return rig;
}

size_t AttentionRig::Take(size_t bytes) {
  const size_t at = size_;
  size_ += (bytes + 255) / 256 * 256;
  return at;
}

Status AttentionRig::Allocate(cuda::Device* device) {
  const AttentionCase& c = case_;
  device_ = device;
  BELLHOP_TRY_ASSIGN(auto stream, cuda::Stream::Create(device));
  stream_ = std::make_unique<cuda::Stream>(std::move(stream));
  const auto rows = static_cast<size_t>(c.Launched());
  const auto kv_heads = static_cast<size_t>(c.kv_heads), element = static_cast<size_t>(KvTypeBytes(c.type));
  stride_ = c.heads * c.key_dim + c.kv_heads * (c.key_dim + c.value_dim) + 5;  // rows are not aligned
  out_stride_ = (c.heads * c.value_dim + kTermPadding - 1) / kTermPadding * kTermPadding;
  active_at_ = Take(4);
  positions_at_ = Take(4 * rows);
  tables_at_ = Take(4 * rows * static_cast<size_t>(c.max_pages));
  qkv_at_ = Take(4 * rows * static_cast<size_t>(stride_));
  q_norm_at_ = Take(4 * static_cast<size_t>(c.heads * c.key_dim));
  k_norm_at_ = Take(4 * kv_heads * static_cast<size_t>(c.key_dim));
  rope_at_ = Take(4 * static_cast<size_t>(c.max_pages * kKvPageTokens * c.rope_dims));
  sinks_at_ = Take(4 * static_cast<size_t>(c.heads));
  terms_at_ = Take(2 * rows * static_cast<size_t>(c.terms * out_stride_));
  sums_at_ = Take(4 * rows * static_cast<size_t>(out_stride_ / 16));
  counters_at_ = Take(4 * kMaxStepRows * kv_heads);
  const int32_t splits = AttentionSplits(c.kv_heads, c.max_pages, c.window);
  words_bytes_ = AttentionPartialBytes(1, c.heads, c.value_dim, splits);
  words_at_ = Take(words_bytes_);
  // A page has another layer before and behind this one.
  keys_in_page_ = 512;
  values_in_page_ = keys_in_page_ + kv_heads * kKvPageTokens * static_cast<size_t>(c.key_dim) * element;
  page_bytes_ = values_in_page_ + kv_heads * kKvPageTokens * static_cast<size_t>(c.value_dim) * element + 256;
  // Every sequence up to its last row, and the shared pages.
  int32_t sequences = 0;
  for (const TestRow& row : c.rows) sequences = std::max(sequences, row.sequence + 1);
  tables_.assign(static_cast<size_t>(sequences), {});
  std::vector<int32_t> first(tables_.size(), std::numeric_limits<int32_t>::max()), last(tables_.size(), -1);
  for (const TestRow& row : c.rows) {
    const auto s = static_cast<size_t>(row.sequence);
    if (row.position >= 0) first[s] = std::min(first[s], row.position);
    last[s] = std::max(last[s], row.position);
  }
  pages_ = 2;
  for (size_t s = 0; s < tables_.size(); ++s) {
    tables_[s].assign(static_cast<size_t>(c.max_pages), kUnseenPage);
    for (int32_t p = 0; p <= (last[s] < 0 ? -1 : last[s] / kKvPageTokens); ++p) {
      tables_[s][static_cast<size_t>(p)] = p < 2 && (p + 1) * kKvPageTokens <= first[s] ? p : pages_++;
    }
  }
  // Pages lie in a mixed order.
  std::vector<int32_t> order(static_cast<size_t>(pages_));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  for (auto& table : tables_) {
    for (int32_t& page : table) page = page == kUnseenPage ? page : order[static_cast<size_t>(page)];
  }
  cache_at_ = Take(page_bytes_ * static_cast<size_t>(pages_));
  BELLHOP_TRY_ASSIGN(host_, cuda::PinnedBuffer::Create(device, size_, MemoryTag::kStaging));
  BELLHOP_TRY_ASSIGN(device_memory_, cuda::DeviceBuffer::Create(device, size_, MemoryTag::kKvCache));
  BELLHOP_TRY_ASSIGN(
      partials_, cuda::DeviceBuffer::Create(device, AttentionPartialBytes(c.Launched(), c.heads, c.value_dim, splits),
                                            MemoryTag::kWorkspace));
  return Status();
}

void AttentionRig::FillCache(uint32_t seed) {
  const AttentionCase& c = case_;
  std::mt19937 random(seed);
  std::vector<float> x(static_cast<size_t>(std::max(c.key_dim, c.value_dim)));
  std::vector<int32_t> first(tables_.size(), std::numeric_limits<int32_t>::max());
  for (const TestRow& row : c.rows) {
    if (row.position >= 0) first[row.sequence] = std::min(first[row.sequence], row.position);
  }
  for (int32_t m = 0; m < c.Launched(); ++m) {
    const bool used = m < static_cast<int32_t>(c.rows.size());
    Host<int32_t>(positions_at_)[m] = used ? c.rows[m].position : kUnseenPage;
    int32_t* const table = Host<int32_t>(tables_at_) + int64_t{m} * c.max_pages;
    std::fill(table, table + c.max_pages, kUnseenPage);
    if (!used) continue;
    std::copy(tables_[c.rows[m].sequence].begin(), tables_[c.rows[m].sequence].end(), table);
    int32_t& end = first[c.rows[m].sequence];
    if (end == std::numeric_limits<int32_t>::max()) continue;
    for (int32_t p = 0; p < end; ++p) {
      for (int32_t h = 0; h < c.kv_heads; ++h) {
        for (const bool key : {true, false}) {
          const int32_t dim = key ? c.key_dim : c.value_dim;
          FillRandom(x.data(), dim, &random);
          for (int32_t e = 0; e < dim; ++e) StoreElement(CacheOffset(key, m, h, p, e), x[e]);
        }
      }
    }
    end = std::numeric_limits<int32_t>::max();  // once a sequence
  }
}

void AttentionRig::FillInputs(uint32_t seed) {
  std::mt19937 random(seed);
  FillRandom(qkv(), static_cast<int64_t>(case_.rows.size()) * stride_, &random);
}

void AttentionRig::PoisonOutputs() { std::memset(Host<uint8_t>(terms_at_), 0xFF, counters_at_ - terms_at_); }

void AttentionRig::SetPosition(int32_t row, int32_t position) {
  Host<int32_t>(positions_at_)[row] = case_.rows[row].position = position;
}

size_t AttentionRig::CacheOffset(bool key, int32_t row, int32_t head, int32_t position, int32_t e) const {
  const auto dim = static_cast<size_t>(key ? case_.key_dim : case_.value_dim);
  const auto page = static_cast<size_t>(tables_[case_.rows[row].sequence][position / kKvPageTokens]);
  const size_t at = (static_cast<size_t>(head) * kKvPageTokens + position % kKvPageTokens) * dim + e;
  return cache_at_ + page * page_bytes_ + (key ? keys_in_page_ : values_in_page_) + at * KvTypeBytes(case_.type);
}

void AttentionRig::StoreElement(size_t offset, float value) {
  if (case_.type == KvType::kF32) {
    *Host<float>(offset) = value;
  } else {
    *Host<uint16_t>(offset) = case_.type == KvType::kF16 ? quant::F32ToF16(value) : quant::F32ToBf16(value);
  }
}

void AttentionRig::SetKey(int32_t row, int32_t head, int32_t position, int32_t e, float value) {
  StoreElement(CacheOffset(true, row, head, position, e), value);
}

std::vector<uint8_t> AttentionRig::Cache() const {
  const uint8_t* const begin = Host<uint8_t>(cache_at_);
  return {begin, begin + page_bytes_ * static_cast<size_t>(pages_)};
}

double AttentionRig::CacheAt(bool key, int32_t row, int32_t head, int32_t position, int32_t e) const {
  const size_t offset = CacheOffset(key, row, head, position, e);
  if (case_.type == KvType::kF32) return *Host<float>(offset);
  const uint16_t half = *Host<uint16_t>(offset);
  return case_.type == KvType::kF16 ? quant::F16ToF32(half) : quant::Bf16ToF32(half);
}

Status AttentionRig::Upload() { return cuda::CopyToDevice(device_memory_.bytes(), host_.bytes(), *stream_); }

Status AttentionRig::Download() {
  BELLHOP_TRY(cuda::CopyToHost(host_.bytes(), device_memory_.bytes(), *stream_));
  return stream_->Synchronize();
}

FinishQkvArgs AttentionRig::FinishOf(int32_t first, int32_t rows) const {
  const AttentionCase& c = case_;
  const StepTables step = {.rows = rows,
                           .active_rows = OnDevice<int32_t>(active_at_),
                           .positions = OnDevice<int32_t>(positions_at_) + first,
                           .block_tables = OnDevice<int32_t>(tables_at_) + int64_t{first} * c.max_pages,
                           .max_pages = c.max_pages};
  const KvLayer kv = {.keys = OnDevice<uint8_t>(cache_at_) + keys_in_page_,
                      .values = OnDevice<uint8_t>(cache_at_) + values_in_page_,
                      .page_bytes = static_cast<int64_t>(page_bytes_),
                      .type = c.type,
                      .kv_heads = c.kv_heads,
                      .key_dim = c.key_dim,
                      .value_dim = c.value_dim};
  float* const qkv = OnDevice<float>(qkv_at_) + int64_t{first} * stride_;
  return {.step = step,
          .kv = kv,
          .heads = c.heads,
          .qkv = qkv,
          .stride = stride_,
          .k_offset = c.heads * c.key_dim,
          .v_offset = (c.heads + c.kv_heads) * c.key_dim,
          .norm = c.norm,
          .q_norm = OnDevice<float>(q_norm_at_),
          .k_norm = OnDevice<float>(k_norm_at_),
          .q_epsilon = kEpsilon,
          .k_epsilon = kEpsilon,
          .rope = c.rope,
          .rope_table = OnDevice<float>(rope_at_),
          .rope_dims = c.rope_dims,
          .reads_ahead = reads_ahead_};
}

AttendArgs AttentionRig::AttendOf(int32_t first, int32_t rows) const {
  const AttentionCase& c = case_;
  const FinishQkvArgs finish = FinishOf(first, rows);
  return {.step = finish.step,
          .kv = finish.kv,
          .heads = c.heads,
          .q = finish.qkv,
          .q_stride = stride_,
          .scale = static_cast<float>(1 / std::sqrt(c.key_dim)),
          .sinks = c.sinks ? OnDevice<float>(sinks_at_) : nullptr,
          .window = c.window,
          .out = {.data = OnDevice<uint16_t>(terms_at_) + int64_t{first} * c.terms * out_stride_,
                  .sums = OnDevice<float>(sums_at_) + int64_t{first} * (out_stride_ / 16),
                  .stride = out_stride_,
                  .terms = c.terms},
          .partials = partials_.as<float>().data(),
          .words = use_words_ ? OnDevice<float>(words_at_) : nullptr,
          .counters = OnDevice<uint32_t>(counters_at_)};
}

Status AttentionRig::Submit(int32_t first, int32_t rows) {
  BELLHOP_CUDA_CHECK(device_, LaunchFinishQkv(FinishOf(first, rows), stream_->queue()));
  BELLHOP_CUDA_CHECK(device_, LaunchAttention(AttendOf(first, rows), stream_->queue()));
  return Status();
}

Status AttentionRig::SubmitFused(int32_t row) {
  BELLHOP_CUDA_CHECK(device_, LaunchFinishAndAttend(FinishOf(row, 1), AttendOf(row, 1), stream_->queue()));
  return Status();
}

Status AttentionRig::Run() {
  BELLHOP_TRY(Upload());
  BELLHOP_TRY(Submit(0, case_.Launched()));
  return Download();
}

// Of q or k before it is rounded; `magnitude`: of what was added up for it.
double AttentionRig::FinishedElement(const std::vector<float>& before, int32_t row, bool query, int32_t head, int32_t e,
                                     double* magnitude) const {
  const AttentionCase& c = case_;
  const int32_t heads = query ? c.heads : c.kv_heads;
  const float* const all = before.data() + int64_t{row} * stride_ + (query ? 0 : c.heads * c.key_dim);
  const float* const weights = Host<float>(query ? q_norm_at_ : k_norm_at_);
  const bool full = c.norm == HeadNorm::kFullWidth;
  double inverse = 1;
  if (c.norm != HeadNorm::kNone) {
    const float* const x = full ? all : all + head * c.key_dim;
    const int32_t n = full ? heads * c.key_dim : c.key_dim;
    double squares = 0;
    for (int32_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
    inverse = 1 / std::sqrt(squares / n + kEpsilon);
  }
  auto normed = [&](int32_t i) {
    const double x = all[head * c.key_dim + i];
    return c.norm == HeadNorm::kNone ? x : x * inverse * weights[(full ? head * c.key_dim : 0) + i];
  };
  *magnitude = std::abs(normed(e));
  if (c.rope == RopeOrder::kNone || e >= c.rope_dims) return normed(e);
  const int32_t half = c.rope_dims / 2;
  const bool neox = c.rope == RopeOrder::kNeox, is_second = neox ? e >= half : e % 2 == 1;
  const int32_t pair = neox ? e % half : e / 2, other = neox ? (e + half) % c.rope_dims : e ^ 1;
  const float* const table = Host<float>(rope_at_) + int64_t{c.rows[row].position} * c.rope_dims;
  const double cos = table[2 * pair], sin = table[2 * pair + 1];
  *magnitude = 1.25 * (std::abs(normed(e)) + std::abs(normed(other)));
  return normed(e) * cos + (is_second ? 1 : -1) * normed(other) * sin;
}

void AttentionRig::CheckFinished(const std::vector<float>& before) const {
  const AttentionCase& c = case_;
  // Rounding to the type, subnormal f16 included, and some roundings of f32.
  auto tolerance = [&](double value, double magnitude) {
    return Rounding(c.type) * std::abs(value) + 4e-6 * magnitude + 3e-8;
  };
  for (int32_t m = 0; m < static_cast<int32_t>(c.rows.size()); ++m) {
    const int32_t position = c.rows[m].position;
    if (position < 0) continue;
    const int64_t at = int64_t{m} * stride_;
    double magnitude = 0;
    for (int32_t i = 0; i < c.heads * c.key_dim; ++i) {
      const double want = FinishedElement(before, m, true, i / c.key_dim, i % c.key_dim, &magnitude);
      ASSERT_NEAR(qkv()[at + i], want, tolerance(want, magnitude)) << "q " << i << " of row " << m;
    }
    for (int32_t i = 0; i < c.kv_heads * c.key_dim; ++i) {
      const int32_t h = i / c.key_dim, e = i % c.key_dim;
      const double want = FinishedElement(before, m, false, h, e, &magnitude);
      ASSERT_NEAR(CacheAt(true, m, h, position, e), want, tolerance(want, magnitude)) << "k " << i << " of row " << m;
    }
    for (int32_t i = 0; i < c.kv_heads * c.value_dim; ++i) {
      const double want = before[at + (c.heads + c.kv_heads) * c.key_dim + i];
      ASSERT_NEAR(CacheAt(false, m, i / c.value_dim, position, i % c.value_dim), want, tolerance(want, 0))
          << "v " << i << " of row " << m;
    }
    EXPECT_EQ(std::memcmp(qkv() + at + c.heads * c.key_dim, before.data() + at + c.heads * c.key_dim,
                          size_t(stride_ - c.heads * c.key_dim) * 4),
              0);
  }
}

double AttentionRig::ResultAt(int32_t row, int32_t e) const {
  double sum = 0;
  for (int32_t t = 0; t < case_.terms; ++t) {
    sum +=
        quant::Bf16ToF32(Host<uint16_t>(terms_at_)[(int64_t{row} * case_.terms + t) * out_stride_ + TermPosition(e)]);
  }
  return sum;
}

void AttentionRig::CheckHead(int32_t row, int32_t head, bool expect_nan) const {
  const AttentionCase& c = case_;
  const int32_t kv_head = head / (c.heads / c.kv_heads), end = c.rows[row].position + 1;
  const int32_t begin = c.window > 0 ? std::max(0, end - c.window) : 0;
  const float* const q = qkv() + int64_t{row} * stride_ + head * c.key_dim;
  const double scale = static_cast<float>(1 / std::sqrt(c.key_dim));
  std::vector<double> scores;
  double max = c.sinks ? Host<float>(sinks_at_)[head] : -INFINITY, largest = 0;
  for (int32_t p = begin; p < end; ++p) {
    double score = 0, size = 0;
    for (int32_t e = 0; e < c.key_dim; ++e) {
      const double product = q[e] * CacheAt(true, row, kv_head, p, e) * scale;
      score += product;
      size += std::isfinite(product) ? std::abs(product) : 0;
    }
    scores.push_back(score);
    max = std::max(max, score);
    largest = std::max(largest, size);
  }
  double total = c.sinks ? std::exp(Host<float>(sinks_at_)[head] - max) : 0;
  for (double& s : scores) total += s = std::exp(s - max);
  for (int32_t d = 0; d < c.value_dim; ++d) {
    const double got = ResultAt(row, head * c.value_dim + d);
    if (expect_nan) {
      ASSERT_TRUE(std::isnan(got)) << "row " << row << " head " << head << " " << d;
      continue;
    }
    double want = 0, size = 0, sum = 0;
    for (int32_t p = begin; p < end; ++p) {
      const double v = CacheAt(false, row, kv_head, p, d);
      want += scores[p - begin] * v;
      size += scores[p - begin] * std::abs(v);
      sum += std::abs(v);
    }
    if (end > begin) want /= total, size /= total, sum /= total;
    // Weights are rounded to the type (subnormal ones of f16 by up to 2^-25); scores have errors of f32 sums, which
    // are errors of weights in proportion; the result is cut to its terms.
    const double rounding = c.type == KvType::kF32 ? 0 : Rounding(c.type);
    const double tolerance = size * (rounding + 1e-5 + largest * std::ldexp(1.0, -20)) +
                             (c.type == KvType::kF16 ? sum * std::ldexp(1.0, -25) : 0) +
                             std::abs(want) * std::ldexp(1.0, -8 * c.terms + 1);
    ASSERT_NEAR(got, want, tolerance) << "row " << row << " head " << head << " element " << d;
  }
}

void AttentionRig::CheckResults(uint64_t nan_heads) const {
  const AttentionCase& c = case_;
  const int32_t columns = c.heads * c.value_dim;
  for (int32_t m = 0; m < c.Launched(); ++m) {
    const float* const sums = Host<float>(sums_at_) + int64_t{m} * (out_stride_ / 16);
    if (m >= static_cast<int32_t>(c.rows.size())) {  // untouched
      const std::vector<uint8_t> bytes = OutputOf(m);
      ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0xFF; })) << "row " << m;
      continue;
    }
    for (int32_t h = 0; h < c.heads; ++h) {
      CheckHead(m, h, m == 0 && (nan_heads >> h & 1u) != 0);
      if (testing::Test::HasFatalFailure()) return;
    }
    for (int32_t e = columns; e < out_stride_; ++e) ASSERT_EQ(ResultAt(m, e), 0) << "padding " << e << " of row " << m;
    for (int32_t i = 0; i < out_stride_ / 16; ++i) {
      double sum = 0, size = 0;
      for (int32_t e = 16 * i; e < 16 * i + 16; ++e) sum += ResultAt(m, e), size += std::abs(ResultAt(m, e));
      if (std::isnan(sum)) {
        ASSERT_TRUE(std::isnan(sums[i]));
      } else {
        ASSERT_NEAR(sums[i], sum, size * (std::ldexp(1.0, -8 * c.terms + 1) + 1e-6)) << "sum " << i << " of row " << m;
      }
    }
  }
}

void AttentionRig::CheckCountersAreZero() const {
  const auto* const counters = Host<uint32_t>(counters_at_);
  EXPECT_TRUE(std::all_of(counters, counters + kMaxStepRows * case_.kv_heads, [](uint32_t n) { return n == 0; }));
  const auto* const words = Host<uint8_t>(words_at_);
  EXPECT_TRUE(std::all_of(words, words + words_bytes_, [](uint8_t b) { return b == 0; }));
}

std::vector<uint8_t> AttentionRig::OutputOf(int32_t row) const {
  const auto terms = static_cast<size_t>(case_.terms * out_stride_) * 2;
  const auto sums = static_cast<size_t>(out_stride_ / 16) * 4;
  const auto* const a = Host<uint8_t>(terms_at_) + static_cast<size_t>(row) * terms;
  const auto* const b = Host<uint8_t>(sums_at_) + static_cast<size_t>(row) * sums;
  std::vector<uint8_t> bytes(a, a + terms);
  bytes.insert(bytes.end(), b, b + sums);
  return bytes;
}

}  // namespace bellhop::kernels
