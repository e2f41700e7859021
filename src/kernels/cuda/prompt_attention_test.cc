// Attention of prompts: finishing q and k against the decode kernels to the bit, attending against double precision.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#include "kernels/cuda/prompt_attention.h"
#include "kernels/cuda/prompt_rig_for_test.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

constexpr int32_t kUnseenPage = std::numeric_limits<int32_t>::max() / 2;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

struct ChunkCase {
  KvType type = KvType::kF16;
  int32_t heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64;
  int32_t rows = 100, first = 0, window = 0;
  bool sinks = false;
};

std::string Name(const ChunkCase& c) {
  return "type " + std::to_string(static_cast<int>(c.type)) + " heads " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + " dims " + std::to_string(c.key_dim) + "/" + std::to_string(c.value_dim) +
         " rows " + std::to_string(c.rows) + " at " + std::to_string(c.first) + " window " + std::to_string(c.window) +
         (c.sinks ? " sinks" : "");
}

double Rounding(KvType type) { return type == KvType::kF32 ? 0 : std::ldexp(1.0, type == KvType::kF16 ? -11 : -8); }
float Rounded(KvType type, float v) {
  if (type == KvType::kF16) return quant::F16ToF32(quant::F32ToF16(v));
  return type == KvType::kBF16 ? quant::Bf16ToF32(quant::F32ToBf16(v)) : v;
}

// A sequence's cache: pages in no order, NaN but for the positions that exist.
class Cache {
 public:
  Cache(const ChunkCase& c, int32_t positions) : c_(c) {
    element_ = c.type == KvType::kF32 ? 4 : 2;
    keys_at_ = 512;
    values_at_ = keys_at_ + c.kv_heads * kKvPageTokens * c.key_dim * element_;
    page_bytes_ = (values_at_ + c.kv_heads * kKvPageTokens * c.value_dim * element_ + 256 + 15) / 16 * 16;
    const int32_t pages = (positions + kKvPageTokens - 1) / kKvPageTokens;
    for (int32_t p = 0; p < pages; ++p) table_.push_back((p * 7 + 3) % (7 * pages + 4));
    std::mt19937 random(5);
    std::shuffle(table_.begin(), table_.end(), random);
    bytes_.assign(Size(int64_t{7 * pages + 4} * page_bytes_), 0xFF);
  }
  // Of the tables that are uploaded, entries behind the last page are far out of bounds.
  std::vector<int32_t> Table() const {
    std::vector<int32_t> table = table_;
    table.resize(table.size() + 5, kUnseenPage);
    return table;
  }
  void Set(bool key, int32_t head, int32_t position, int32_t e, float v) {
    uint8_t* const at = bytes_.data() + At(key, head, position, e);
    if (element_ == 4) {
      std::memcpy(at, &v, 4);
    } else {
      const uint16_t bits = c_.type == KvType::kF16 ? quant::F32ToF16(v) : quant::F32ToBf16(v);
      std::memcpy(at, &bits, 2);
    }
  }
  double Get(bool key, int32_t head, int32_t position, int32_t e) const {
    const uint8_t* const at = bytes_.data() + At(key, head, position, e);
    if (element_ == 4) {
      float v;
      std::memcpy(&v, at, 4);
      return v;
    }
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return c_.type == KvType::kF16 ? quant::F16ToF32(bits) : quant::Bf16ToF32(bits);
  }
  // Some keys are larger, so that maxima rise late.
  void Fill(int32_t positions, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-1.73f, 1.73f);
    for (int32_t p = 0; p < positions; ++p) {
      const float size = random() % 31 == 0 ? 3.0f : 1.0f;
      for (int32_t h = 0; h < c_.kv_heads; ++h) {
        for (int32_t e = 0; e < c_.key_dim; ++e) Set(true, h, p, e, size * values(random));
        for (int32_t e = 0; e < c_.value_dim; ++e) Set(false, h, p, e, values(random));
      }
    }
  }
  KvLayer Describe(uint8_t* device) const {
    KvLayer kv;
    kv.keys = device + keys_at_;
    kv.values = device + values_at_;
    kv.page_bytes = page_bytes_;
    kv.type = c_.type;
    kv.kv_heads = c_.kv_heads;
    kv.key_dim = c_.key_dim;
    kv.value_dim = c_.value_dim;
    return kv;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  size_t At(bool key, int32_t head, int32_t position, int32_t e) const {
    const int64_t page = table_[Size(position / kKvPageTokens)] * page_bytes_ + (key ? keys_at_ : values_at_);
    const int64_t row = int64_t{head} * kKvPageTokens + position % kKvPageTokens;
    return Size(page + (row * (key ? c_.key_dim : c_.value_dim) + e) * element_);
  }
  const ChunkCase c_;
  int64_t element_ = 2, keys_at_ = 0, values_at_ = 0, page_bytes_ = 0;
  std::vector<int32_t> table_;
  std::vector<uint8_t> bytes_;
};

class PromptAttentionTest : public GpuTest {
 protected:
  void Run(const ChunkCase& c) {
    for (const PromptDevice& device : PromptDevices()) Run(c, device);
  }

 private:
  void Run(const ChunkCase& c, const PromptDevice& device) {
    SCOPED_TRACE(Name(c) + ", " + PromptMathName(device.math));
    Cache cache(c, c.first + c.rows);
    cache.Fill(c.first + c.rows, 1);
    const int64_t q_stride = c.heads * c.key_dim + 5;  // rows are not aligned
    auto q = Normal(Size(c.rows * q_stride), 1, 2);
    for (float& v : q) v = Rounded(c.type, v);
    const auto sinks = Normal(Size(c.heads), 2, 3);
    const int32_t columns = c.heads * c.value_dim;
    PromptAttendArgs args;
    args.kv = cache.Describe(rig().Upload(cache.bytes()));
    args.rows = c.rows;
    args.first_position = c.first;
    args.block_table = rig().Upload(cache.Table());
    args.heads = c.heads;
    args.q = rig().Upload(q);
    args.q_stride = q_stride;
    args.scale = static_cast<float>(1 / std::sqrt(c.key_dim));
    args.sinks = c.sinks ? rig().Upload(sinks) : nullptr;
    args.window = c.window;
    args.device = device;
    // Where there is one kernel, it has been tested.
    if (device.math == PromptMath::kWgmma && !AttendsWithWgmma(args)) return rig().FreeMemory();
    args.out = PoisonedPromptRows(rig(), c.rows + 1, columns);
    ASSERT_EQ(LaunchPromptAttention(args, rig().queue()), cudaSuccess);
    std::vector<bool> skipped(Size(c.rows + 1));
    skipped.back() = true;
    const auto got = DownloadPromptRows(rig(), args.out, c.rows + 1, columns, skipped);
    std::vector<double> want;
    for (int32_t m = 0; m < c.rows; ++m) {
      for (int32_t h = 0; h < c.heads; ++h) {
        CheckHead(c, cache, q.data() + m * q_stride + h * c.key_dim, m, h, args.scale,
                  c.sinks ? &sinks[Size(h)] : nullptr, got.data() + int64_t{m} * columns + h * c.value_dim, &want);
        if (HasFatalFailure()) return;
      }
    }
    const double error = RelativeL2({got.begin(), got.begin() + static_cast<std::ptrdiff_t>(want.size())}, want);
    EXPECT_LE(error, c.type == KvType::kBF16 ? 4e-3 : 2e-3);
    std::cout << Name(c) << ", " << PromptMathName(device.math) << ": relative error " << error << "\n";
    // Other bounds, the same bits.
    for (const int32_t cut : {1, c.rows * 2 / 5, c.rows - 1}) {
      if (cut <= 0 || cut >= c.rows) continue;
      std::vector<float> parts;
      for (const int32_t first : {0, cut}) {
        PromptAttendArgs part = args;
        // And other blocks.
        if (cut > 1) part.device.multiprocessors = std::min(part.device.multiprocessors, 3);
        part.rows = first == 0 ? cut : c.rows - cut;
        part.first_position += first;
        part.q += first * q_stride;
        part.out = PoisonedPromptRows(rig(), part.rows, columns);
        ASSERT_EQ(LaunchPromptAttention(part, rig().queue()), cudaSuccess);
        const auto some = DownloadPromptRows(rig(), part.out, part.rows, columns);
        parts.insert(parts.end(), some.begin(), some.end());
      }
      EXPECT_TRUE(SameBits(parts.data(), got.data(), parts.size())) << "two chunks, cut at row " << cut;
    }
    rig().FreeMemory();
  }

  // Appends what `got` has to be about.
  static void CheckHead(const ChunkCase& c, const Cache& cache, const float* q, int32_t m, int32_t head, double scale,
                        const float* sink, const float* got, std::vector<double>* want) {
    const int32_t kv_head = head / (c.heads / c.kv_heads), end = c.first + m + 1;
    const int32_t begin = c.window > 0 ? std::max(0, end - c.window) : 0;
    std::vector<double> scores;
    double max = sink != nullptr ? *sink : -INFINITY, largest = 0;
    for (int32_t p = begin; p < end; ++p) {
      double score = 0, size = 0;
      for (int32_t e = 0; e < c.key_dim; ++e) {
        const double product = q[e] * cache.Get(true, kv_head, p, e) * scale;
        score += product;
        size += std::fabs(product);
      }
      scores.push_back(score);
      max = std::max(max, score);
      largest = std::max(largest, size);
    }
    double total = sink != nullptr ? std::exp(*sink - max) : 0;
    for (double& s : scores) total += s = std::exp(s - max);
    for (int32_t d = 0; d < c.value_dim; ++d) {
      double sum = 0, size = 0, values = 0;
      for (int32_t p = begin; p < end; ++p) {
        const double v = cache.Get(false, kv_head, p, d);
        sum += scores[Size(p - begin)] * v / total;
        size += scores[Size(p - begin)] * std::fabs(v) / total;
        values += std::fabs(v) / total;
      }
      // As in attention_rig_for_test.cc, and one bf16.
      const double tolerance = size * (Rounding(c.type) + 1e-5 + largest * 0x1p-20) +
                               (c.type == KvType::kF16 ? values * 0x1p-25 : 0) + std::fabs(sum) * 0x1p-8;
      want->push_back(sum);
      ASSERT_NEAR(got[d], sum, tolerance) << "row " << m << " head " << head << " element " << d;
    }
  }
};

TEST_F(PromptAttentionTest, DimsAndGroups) {
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32}) {
    ChunkCase c;
    c.type = type;
    Run(c);
    c.heads = 4, c.kv_heads = 4, c.key_dim = c.value_dim = 128;
    Run(c);
    c.heads = 10, c.kv_heads = 2, c.key_dim = 72, c.value_dim = 104, c.rows = 61;
    Run(c);
    c.heads = 6, c.kv_heads = 2, c.key_dim = 192, c.value_dim = 128, c.rows = 70, c.first = 45;
    Run(c);
    c.heads = 16, c.kv_heads = 1, c.key_dim = c.value_dim = 256, c.rows = 33;
    Run(c);
    c.heads = 7, c.kv_heads = 1, c.key_dim = 8, c.value_dim = 24, c.rows = 50, c.first = 0;
    Run(c);
    c.heads = 3, c.kv_heads = 3, c.key_dim = 40, c.value_dim = 56;
    Run(c);
  }
}

TEST_F(PromptAttentionTest, PositionsWindowsAndSinks) {
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32}) {
    for (const int32_t first : {0, 37, 64, 700}) {
      for (const int32_t window : {0, 1, 50, 128}) {
        ChunkCase c;
        c.type = type;
        c.heads = 12, c.kv_heads = 2, c.key_dim = c.value_dim = window == 50 ? 128 : 64;
        c.first = first;
        c.window = window;
        c.rows = first == 64 ? 1 : window == 0 ? 150 : 90;
        c.sinks = window == 50 || first == 37;
        Run(c);
      }
    }
  }
}

// Chunks are finished as the rows of decode steps are.
TEST_F(PromptAttentionTest, FinishedRowsAreThoseOfDecodeSteps) {
  for (const HeadNorm norm : {HeadNorm::kPerHead, HeadNorm::kFullWidth}) {
    ChunkCase c;
    c.type = norm == HeadNorm::kPerHead ? KvType::kF16 : KvType::kBF16;
    c.rows = 135, c.first = 50, c.key_dim = 96, c.value_dim = 64;
    const int32_t end = c.first + c.rows;
    Cache cache(c, end);
    cache.Fill(c.first, 1);
    const int32_t queries = c.heads * c.key_dim, keys = c.kv_heads * c.key_dim;
    const int32_t stride = queries + keys + c.kv_heads * c.value_dim + 4;
    const auto qkv = Normal(Size(c.rows * stride), 2, 9);
    uint8_t* caches[2];
    float* rows[2];
    for (int way = 0; way < 2; ++way) {
      FinishQkvArgs args;
      caches[way] = rig().Upload(cache.bytes());
      rows[way] = rig().Upload(qkv);
      args.kv = cache.Describe(caches[way]);
      args.heads = c.heads;
      args.qkv = rows[way];
      args.stride = stride;
      args.k_offset = queries;
      args.v_offset = queries + keys;
      args.norm = norm;
      const bool full = norm == HeadNorm::kFullWidth;
      args.q_norm = rig().Upload(Normal(Size(full ? queries : c.key_dim), 1, 10));
      args.k_norm = rig().Upload(Normal(Size(full ? keys : c.key_dim), 1, 11));
      args.q_epsilon = args.k_epsilon = 1e-6f;
      args.rope = RopeOrder::kNeox;
      args.rope_dims = 64;
      args.rope_table = rig().Upload(Normal(Size(end * args.rope_dims), 1, 12));
      const auto table = cache.Table();
      if (way == 0) {
        args.step.rows = c.rows;
        args.step.block_tables = rig().Upload(table);
        args.step.max_pages = static_cast<int32_t>(table.size());
        args.step.first_position = c.first;
        ASSERT_EQ(LaunchFinishQkv(args, rig().queue()), cudaSuccess);
        continue;
      }
      for (int32_t first = 0; first < c.rows; first += kMaxStepRows) {
        const int32_t count = std::min(kMaxStepRows, c.rows - first);
        std::vector<int32_t> positions, tables;
        for (int32_t m = 0; m < count; ++m) {
          positions.push_back(c.first + first + m);
          tables.insert(tables.end(), table.begin(), table.end());
        }
        args.qkv = rows[way] + int64_t{first} * stride;
        args.step = {.rows = count,
                     .active_rows = rig().Upload(std::vector<int32_t>{count}),
                     .positions = rig().Upload(positions),
                     .block_tables = rig().Upload(tables),
                     .max_pages = static_cast<int32_t>(table.size())};
        ASSERT_EQ(LaunchFinishQkv(args, rig().queue()), cudaSuccess);
      }
    }
    EXPECT_EQ(rig().Download(caches[0], cache.bytes().size()), rig().Download(caches[1], cache.bytes().size()));
    const auto a = rig().Download(rows[0], qkv.size()), b = rig().Download(rows[1], qkv.size());
    EXPECT_TRUE(SameBits(a.data(), b.data(), a.size()));
    EXPECT_FALSE(SameBits(a.data(), qkv.data(), a.size()));
    rig().FreeMemory();
  }
}

// Sizes of the kernel for Hopper: tiles that all rows see, that some see, windows that begin inside of tiles.
TEST_F(PromptAttentionTest, ManyTiles) {
  for (const KvType type : {KvType::kF16, KvType::kBF16}) {
    for (const int32_t dim : {64, 128, 256}) {
      ChunkCase c;
      c.type = type;
      c.key_dim = c.value_dim = dim;
      c.heads = 8, c.kv_heads = 1, c.rows = 50, c.first = 400;
      c.sinks = type == KvType::kBF16;
      Run(c);
      c.heads = 3, c.kv_heads = 3, c.rows = 129, c.first = 127;
      Run(c);
      c.heads = 14, c.kv_heads = 2, c.rows = 40, c.first = 290, c.window = 200;
      Run(c);
    }
  }
}

TEST_F(PromptAttentionTest, ScoresThatAreNoNumbersReachTheirHeadsAlone) {
  ChunkCase c;
  c.rows = 80;
  Cache cache(c, c.rows);
  cache.Fill(c.rows, 1);
  cache.Set(true, 0, 40, 3, NAN);  // rows from 40 on, the first KV head's queries
  auto q = Normal(Size(c.rows * c.heads * c.key_dim), 1, 2);
  for (float& v : q) v = Rounded(c.type, v);
  PromptAttendArgs args;
  args.kv = cache.Describe(rig().Upload(cache.bytes()));
  args.rows = c.rows;
  args.block_table = rig().Upload(cache.Table());
  args.heads = c.heads;
  args.q = rig().Upload(q);
  args.q_stride = c.heads * c.key_dim;
  args.scale = 0.125f;
  for (const PromptDevice& device : PromptDevices()) {
    args.device = device;
    args.out = PoisonedPromptRows(rig(), c.rows, c.heads * c.value_dim);
    ASSERT_EQ(LaunchPromptAttention(args, rig().queue()), cudaSuccess);
    const auto data = rig().Download(args.out.data, Size(int64_t{c.rows} * args.out.stride));
    for (int32_t m = 0; m < c.rows; ++m) {
      for (int32_t e = 0; e < c.heads * c.value_dim; ++e) {
        const bool bad = m >= 40 && e / c.value_dim < c.heads / c.kv_heads;
        ASSERT_EQ(std::isnan(quant::Bf16ToF32(data[Size(int64_t{m} * args.out.stride + PromptPosition(e))])), bad)
            << "row " << m << " column " << e;
      }
    }
  }
}

TEST_F(PromptAttentionTest, ImpossibleChunksAreRefused) {
  PromptAttendArgs args;
  args.kv.kv_heads = 2, args.kv.key_dim = args.kv.value_dim = 64;
  args.heads = 8;
  args.rows = 4;
  args.out = PoisonedPromptRows(rig(), 4, 256);
  EXPECT_EQ(LaunchPromptAttention(args, rig().queue()), cudaErrorInvalidValue) << "too few columns";
  args.out = PoisonedPromptRows(rig(), 4, 512);
  args.heads = 7;
  EXPECT_EQ(LaunchPromptAttention(args, rig().queue()), cudaErrorInvalidValue) << "heads without a KV head";
}

}  // namespace
}  // namespace bellhop::kernels
