// Variants of model files for fault tests: read a file, change keys and tensors, write the result elsewhere. Misuse
// throws, and so fails the running test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "config/config.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_writer.h"
#include "quant/format.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::test {

struct VariantTensor {
  std::string name;
  quant::WeightFormat format = quant::WeightFormat::kF32;
  std::vector<uint64_t> dims;  // contiguous one first
  std::vector<std::byte> bytes;

  uint64_t rows() const;
  std::vector<float> Values() const;
};

class Variant {
 public:
  Variant() = default;
  // Of a whole model, split or not.
  static Variant Of(const std::string& path);
  // Of tests/golden/arch/NAME.gguf.
  static Variant Arch(const std::string& name);

  std::string architecture() const { return architecture_; }
  std::string Key(const std::string& suffix) const { return architecture_ + "." + suffix; }
  bool HasKey(const std::string& key) const;
  // These replace a key where it stands or add it. Names with a leading dot get the architecture in front.
  Variant& SetUint(const std::string& key, uint64_t value);
  Variant& SetFloat(const std::string& key, double value);
  Variant& SetString(const std::string& key, const std::string& value);
  Variant& SetStrings(const std::string& key, const std::vector<std::string>& values);
  Variant& SetInts(const std::string& key, const std::vector<int32_t>& values);
  Variant& RemoveKey(const std::string& key);

  std::vector<VariantTensor>& tensors() { return tensors_; }
  const std::vector<VariantTensor>& tensors() const { return tensors_; }
  bool Has(const std::string& name) const;
  VariantTensor& At(const std::string& name);
  Variant& Remove(const std::string& name);
  // Adds the tensor or replaces it where it stands; the values are encoded.
  Variant& Put(const std::string& name, std::vector<uint64_t> dims, const std::vector<float>& values,
               quant::WeightFormat format = quant::WeightFormat::kF32);
  // Applies fn(index, value) to every value of a tensor, which becomes F32.
  Variant& Map(const std::string& name, const std::function<float(size_t, float)>& fn);

  // Writes the tensors in their present order; only those in [first, last) for a part of a split model.
  void Write(const std::string& path, size_t first = 0, size_t last = SIZE_MAX) const;

 private:
  using AddKey = std::function<Status(formats::GgufWriter&)>;
  Variant& SetKey(const std::string& key, AddKey add);
  std::string FullKey(const std::string& key) const { return key.front() == '.' ? architecture_ + key : key; }

  std::shared_ptr<formats::GgufModel> source_;  // keys point into it
  std::string architecture_;
  std::vector<std::pair<std::string, AddKey>> keys_;
  std::vector<VariantTensor> tensors_;
};

// A folder for variants that goes with the test.
class VariantDir {
 public:
  std::string Path(const std::string& name) const { return dir_.path() + "/" + name; }
  // Writes the variant under a fixed name and returns the path.
  std::string Write(const Variant& variant, const std::string& name = "model.gguf") const;

 private:
  sys::TempDir dir_;
};

using Adjust = std::function<void(config::EngineConfig&)>;

// The status of creating an engine.
Status LoadStatus(const std::string& path, const Adjust& adjust = {});
// Logits of every position from a fresh engine.
std::vector<float> AllLogits(const std::string& path, const std::vector<TokenId>& ids, const Adjust& adjust = {});
inline void Exact(config::EngineConfig& c) { c.context.act = config::ActMode::kF32; }

// The prompt of tests/golden/arch/NAME.json.
std::vector<TokenId> ArchIds(const std::string& name);
// All names of tests/golden/arch, sorted.
std::vector<std::string> ArchNames();

// One layer (or more) of qwen3moe with random F32 weights and a byte vocabulary.
struct MoeShape {
  uint32_t layers = 1, hidden = 32, heads = 4, kv_heads = 2, head_dim = 8, value_dim = 8, inner = 16, experts = 4,
           used = 2;
  uint32_t vocab = 64, context = 256;
  uint32_t seed = 1;
};
Variant MakeMoe(const MoeShape& shape);
// `count` token ids below `vocab` in a fixed mixed order.
std::vector<TokenId> MixedIds(size_t count, uint32_t vocab, uint32_t seed = 7);

}  // namespace bellhop::test
