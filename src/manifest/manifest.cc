#include "manifest/manifest.h"

namespace bellhop::manifest {

std::string Tensor::ShapeString() const {
  std::string out = "[";
  for (int i = 0; i < n_dims; ++i) out += fmt::format("{}{}", i ? ", " : "", dims[static_cast<size_t>(i)]);
  return out + "]";
}

const Tensor* Manifest::FindTensor(std::string_view tensor_name) const {
  const auto it = tensor_index.find(std::string(tensor_name));
  return it == tensor_index.end() ? nullptr : &tensors[static_cast<size_t>(it->second)];
}

std::string Manifest::Key(std::string_view suffix) const { return fmt::format("{}.{}", architecture, suffix); }

uint64_t Manifest::TotalTensorBytes() const {
  uint64_t total = 0;
  for (const Tensor& tensor : tensors) total += tensor.bytes;
  return total;
}

}  // namespace bellhop::manifest
