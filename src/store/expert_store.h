// Where every expert's bytes are. The host tier is the mapped model file, read where it lies, or one copy of all
// experts on huge pages (host_memory.h). (GPU slots and the bounded host cache are further tiers of the same store.)
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "manifest/manifest.h"
#include "quant/quant_view.h"
#include "store/host_memory.h"
#include "sys/host_region.h"

namespace bellhop::store {

// Where the two halves of fc1 are.
enum class Fc1Layout : uint8_t {
  kSeparate,     // gate and up are matrices of their own (or two parts of one)
  kInterleaved,  // `gate` is [2 * inner, hidden]: row 2j is gate j, row 2j + 1 is up j; gate_bias alike; no `up`
  kSingle,       // no up half
};

// One expert. Matrices are [inner, hidden] (gate, up) and [hidden, inner] (down).
struct ExpertView {
  Fc1Layout fc1 = Fc1Layout::kSeparate;
  quant::QuantView gate, up, down;
  const float* gate_bias = nullptr;                    // [inner], null: none
  const float* up_bias = nullptr;                      // [inner]
  const float* down_bias = nullptr;                    // [hidden]
  float gate_scale = 1, up_scale = 1, down_scale = 1;  // per-expert factors on the products (NVFP4 files), 1: none

  uint64_t bytes() const;
};

class ExpertStore {
 public:
  // Checks that every layer's tensors agree in shape with the hyper-parameters; errors name the tensor. The manifest
  // (and its mapped files) must outlive the store.
  static Result<std::unique_ptr<ExpertStore>> Create(const manifest::Manifest& manifest);
  // Layers that come from no model file; what the views point into must outlive the store.
  static std::unique_ptr<ExpertStore> FromViews(std::vector<std::vector<ExpertView>> layers);

  // Layers without routed experts have zero experts.
  int32_t experts(LayerId layer) const { return static_cast<int32_t>(layers_[layer.index()].experts.size()); }
  int32_t layers() const { return static_cast<int32_t>(layers_.size()); }
  int64_t inner() const { return inner_; }

  const ExpertView& Host(LayerId layer, ExpertId expert) const {
    return layers_[layer.index()].experts[expert.index()];
  }
  // Bytes of all experts of a layer, and of the whole model.
  uint64_t LayerBytes(LayerId layer) const;
  uint64_t TotalBytes() const;
  // The matrices of all experts, in layer and expert order.
  std::vector<quant::QuantView> Matrices() const;

  // Copies all experts to huge pages, as far as the kernel gives them, and points every view there. Before anything has
  // taken pointers from the views. On failure (kOutOfMemory, kIo, kCancelled) the store is as before.
  Result<CopyReport> CopyToHugePages(const CopyOptions& options);
  bool copied() const { return copy_.size() > 0; }

 private:
  struct Layer {
    std::vector<ExpertView> experts;
    std::vector<float> gate_bias, up_bias, down_bias;  // [experts][width]
  };
  ExpertStore() = default;
  // fn(QuantView*) for every matrix that there is.
  template <typename Fn>
  void ForEachMatrix(Fn&& fn) {
    for (Layer& layer : layers_) {
      for (ExpertView& expert : layer.experts) {
        for (quant::QuantView* view : {&expert.gate, &expert.up, &expert.down}) {
          if (view->rows > 0) fn(view);
        }
      }
    }
  }

  std::vector<Layer> layers_;
  sys::HostRegion copy_;
  int64_t inner_ = 0;
};

}  // namespace bellhop::store
