// Buffer sizes of models far beyond this machine: computed, never allocated.
#include <gtest/gtest.h>

#include <limits>

#include "model/transformer.h"

namespace bellhop::model {
namespace {

// Sizes alone; the tensors do not exist.
ModelSpec HugeSpec(int64_t hidden, int64_t inner, int32_t experts, int32_t used) {
  ModelSpec spec;
  spec.hidden = hidden;
  spec.vocab = 1 << 18;
  AttentionSpec attention;
  attention.heads = attention.kv_heads = 128;
  attention.key_dim = attention.value_dim = 128;
  attention.q.rows = attention.k.rows = attention.v.rows = attention.output.cols = 128 * 128;
  LayerSpec layer;
  layer.mixer = attention;
  MoeSpec moe;
  moe.experts = experts;
  moe.used = used;
  moe.inner = inner;
  layer.feed_forward = moe;
  spec.layers.assign(64, layer);
  return spec;
}

TEST(SizesTest, WorkspaceCountsTheExpertsInnerSize) {
  const TransformerOptions options{.max_rows = 512, .context_tokens = 1024};
  // Mixtral's shape: the products of an expert are wider than the hidden size.
  const uint64_t narrow = Transformer::WorkspaceBytes(HugeSpec(4096, 4096, 8, 2), options, 1);
  const uint64_t wide = Transformer::WorkspaceBytes(HugeSpec(4096, 14336, 8, 2), options, 1);
  EXPECT_GE(wide - narrow, uint64_t{512} * 2 * 2 * (14336 - 4096) * sizeof(float));
  EXPECT_GE(narrow, uint64_t{512} * 2 * (2 * 4096 + 2 * 4096) * sizeof(float));
}

TEST(SizesTest, RowsTimesWidthBeyond32BitsIsCounted) {
  TransformerOptions options{.max_rows = kMaxStepRows, .context_tokens = 1 << 20};
  const uint64_t bytes = Transformer::WorkspaceBytes(HugeSpec(16384, 32768, 512, 16), options, 1024);
  // Rows x used x (inputs, outputs, two products) alone is far beyond 2^31 elements.
  const uint64_t routes = uint64_t{kMaxStepRows} * 16;
  EXPECT_GT(bytes, routes * (2 * 16384 + 2 * 32768) * sizeof(float));
  EXPECT_LT(bytes, uint64_t{1} << 50);
  // Twice the rows, about twice the bytes: nothing wrapped.
  options.max_rows /= 2;
  const uint64_t half = Transformer::WorkspaceBytes(HugeSpec(16384, 32768, 512, 16), options, 1024);
  EXPECT_LT(half, bytes);
  EXPECT_GT(half, bytes / 3);
}

TEST(SizesTest, KvBytesSaturate) {
  TransformerOptions options{.context_tokens = std::numeric_limits<int32_t>::max()};
  ModelSpec spec = HugeSpec(16384, 32768, 512, 16);
  // 64 layers x 2 x 16384 values x 2 bytes x 2^31 positions = 2^53.
  EXPECT_EQ(Transformer::KvBytes(spec, options), uint64_t{1} << 53);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.k.rows = attention.v.rows = int64_t{1} << 32;
  }
  EXPECT_EQ(Transformer::KvBytes(spec, options), UINT64_MAX);
}

TEST(SizesTest, AnImpossibleCacheIsOutOfMemoryNotACrash) {
  const auto pool = KvPool::Create({{int64_t{1} << 32, int64_t{1} << 32}}, kernels::KvType::kF32, int64_t{1} << 40);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kOutOfMemory);
  EXPECT_NE(pool.status().message().find("--ctx-size"), std::string_view::npos);
  // Few bytes but more pages than page numbers.
  EXPECT_EQ(KvPool::Create({{0, 0}}, kernels::KvType::kF16, int64_t{1} << 33).status().code(),
            StatusCode::kOutOfMemory);
}

}  // namespace
}  // namespace bellhop::model
