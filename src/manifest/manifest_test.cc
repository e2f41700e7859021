#include "manifest/manifest.h"

#include <gtest/gtest.h>

namespace bellhop::manifest {
namespace {

TEST(Manifest, FindsTensorsByNameAndAddsUpBytes) {
  Manifest m;
  m.architecture = "gpt-oss";
  for (const char* name : {"a.weight", "b.weight"}) {
    Tensor tensor;
    tensor.name = name;
    tensor.n_dims = 2;
    tensor.dims = {32, 4, 1, 1};
    tensor.bytes = 512;
    m.tensor_index.emplace(name, static_cast<int32_t>(m.tensors.size()));
    m.tensors.push_back(tensor);
  }
  ASSERT_NE(m.FindTensor("b.weight"), nullptr);
  EXPECT_EQ(m.FindTensor("b.weight"), &m.tensors[1]);
  EXPECT_EQ(m.FindTensor("c.weight"), nullptr);
  EXPECT_EQ(m.TotalTensorBytes(), 1024u);
  EXPECT_EQ(m.Key("block_count"), "gpt-oss.block_count");
}

TEST(Manifest, ShapeListsOnlyTheStoredDimensions) {
  Tensor tensor;
  EXPECT_EQ(tensor.ShapeString(), "[]");
  tensor.n_dims = 3;
  tensor.dims = {256, 128, 32, 1};
  EXPECT_EQ(tensor.ShapeString(), "[256, 128, 32]");
  EXPECT_EQ(tensor.elements(), 256u * 128 * 32);
  EXPECT_EQ(tensor.rows(), 128u * 32);
}

}  // namespace
}  // namespace bellhop::manifest
