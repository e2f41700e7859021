#include "model/gpu/expert_banks.h"

namespace bellhop::model {

Result<ExpertBanks> ExpertBanks::Create(const store::ExpertStore& store, const plan::GpuPlacement& placement,
                                        const StepBuffers& buffers, WeightUploader* uploader,
                                        const cuda::Stream& stream) {
  ExpertBanks made;
  const size_t layers = placement.banks.size();
  const auto experts = static_cast<size_t>(buffers.experts);
  made.bases_.assign(layers, nullptr);
  uint64_t bytes = 0;
  std::vector<uint64_t> begins;
  for (size_t l = 0; l < layers; ++l) {
    begins.push_back(bytes);
    if (store.experts(LayerId(static_cast<int32_t>(l))) == 0) continue;
    const SlotShape shape = ShapeOfSlots(store, LayerId(static_cast<int32_t>(l)));
    bytes += shape.bytes * placement.banks[l].experts.size();
  }
  BELLHOP_TRY_ASSIGN(made.memory_, cuda::DeviceBuffer::Create(&stream.device(), bytes, MemoryTag::kExpertWeights));
  std::vector<int32_t> tables(layers * experts, -1);
  std::vector<int32_t*> pointers(layers);
  for (size_t l = 0; l < layers; ++l) {
    const LayerId layer(static_cast<int32_t>(l));
    pointers[l] = buffers.slot_tables + l * experts;
    if (store.experts(layer) == 0) continue;
    const SlotShape shape = ShapeOfSlots(store, layer);
    made.bases_[l] = reinterpret_cast<uint8_t*>(made.memory_.bytes().data()) + begins[l];
    const std::vector<ExpertId>& slots = placement.banks[l].experts;
    for (size_t s = 0; s < slots.size(); ++s) {
      if (!slots[s].valid()) continue;
      const store::ExpertView& view = store.Host(layer, slots[s]);
      uint8_t* const slot = made.bases_[l] + s * shape.bytes;
      BELLHOP_TRY(uploader->Matrix(view.gate, slot + shape.gate));
      BELLHOP_TRY(uploader->Matrix(view.up, slot + shape.up));
      BELLHOP_TRY(uploader->Matrix(view.down, slot + shape.down));
      tables[l * experts + slots[s].index()] = static_cast<int32_t>(s);
    }
  }
  BELLHOP_TRY(uploader->Bytes(tables.data(), tables.size() * sizeof tables[0], buffers.slot_tables));
  BELLHOP_TRY(uploader->Bytes(pointers.data(), pointers.size() * sizeof pointers[0], buffers.expert_to_slot));
  const uint64_t version = 1;
  BELLHOP_TRY(uploader->Bytes(&version, sizeof version, buffers.placement));
  BELLHOP_TRY(stream.Synchronize());  // the tables are on this stack
  return made;
}

}  // namespace bellhop::model
