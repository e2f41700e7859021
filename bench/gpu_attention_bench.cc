// Attention of a decode step on a GPU, as a captured graph over several layers whose caches together are larger than
// the second-level cache. One row finishes its q, k and v in the same kernel, as in a model. Prints the median and the
// spread of a launch, GB/s of keys and values, and their share of a ceiling (GB/s, the argument; 4600 for an H200).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "cuda/cuda_try.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "kernels/cuda/attention.h"

namespace bellhop::kernels {
namespace {

struct Shape {
  const char* name;
  KvType type;
  int32_t rows, heads, kv_heads, dim, positions;
};

constexpr Shape kShapes[] = {
    {"f16 32/4x128", KvType::kF16, 1, 32, 4, 128, 512},   {"f16 32/4x128", KvType::kF16, 1, 32, 4, 128, 8192},
    {"f16 32/4x128", KvType::kF16, 1, 32, 4, 128, 32768}, {"f16 32/4x128", KvType::kF16, 32, 32, 4, 128, 2048},
    {"bf16 64/8x64", KvType::kBF16, 1, 64, 8, 64, 32768}, {"f16 16/2x256", KvType::kF16, 1, 16, 2, 256, 32768},
    {"f16 32/4x128", KvType::kF16, 1, 32, 4, 128, 2048},  {"f16 16/16x128", KvType::kF16, 1, 16, 16, 128, 8192},
    {"f32 32/4x128", KvType::kF32, 1, 32, 4, 128, 32768},
};
constexpr uint64_t kCacheBytes = uint64_t{512} << 20;  // of all layers at least
constexpr int kSamples = 21;

struct Memory {
  cuda::DeviceBuffer cache, inputs, floats, terms, partials, counters, words;
  int32_t layers = 0;
};

Status Fill(const cuda::DeviceBuffer& to, const void* from, size_t bytes, const cuda::Stream& stream) {
  BELLHOP_TRY(cuda::CopyToDevice(to.bytes().subspan(0, bytes), {static_cast<const std::byte*>(from), bytes}, stream));
  return stream.Synchronize();
}

// Halves, or parts of floats, of some size below 1.
Status FillCache(const cuda::DeviceBuffer& cache, const cuda::Stream& stream) {
  std::vector<uint16_t> halves(size_t{1} << 20);
  std::mt19937 random(1);
  for (uint16_t& half : halves) half = static_cast<uint16_t>((random() & 0x83FFu) | 0x3000u);
  for (uint64_t at = 0; at < cache.size(); at += halves.size() * 2) {
    const uint64_t bytes = std::min<uint64_t>(halves.size() * 2, cache.size() - at);
    BELLHOP_TRY(cuda::CopyToDevice(cache.bytes().subspan(at, bytes),
                                   {reinterpret_cast<const std::byte*>(halves.data()), bytes}, stream));
  }
  return stream.Synchronize();
}

// Rows have pages of their own, and all layers one block table.
Result<Memory> Allocate(cuda::Device* device, const Shape& s, const cuda::Stream& stream) {
  Memory m;
  const int32_t pages = (s.positions + kKvPageTokens - 1) / kKvPageTokens;
  const uint64_t layer = uint64_t{2} * kKvPageTokens * s.kv_heads * s.dim * KvTypeBytes(s.type) * pages * s.rows;
  m.layers = static_cast<int32_t>(std::clamp<uint64_t>(kCacheBytes / layer, 2, 64));
  std::vector<int32_t> ints = {s.rows};
  ints.resize(64, s.positions - 1);
  for (int32_t p = 0; p < pages * s.rows; ++p) ints.push_back(p);
  const uint64_t q_floats = uint64_t(s.rows) * s.heads * s.dim;
  const uint64_t floats = q_floats + uint64_t(2) * s.kv_heads * s.dim + uint64_t(s.positions + 1) * s.dim;
  const int32_t splits = AttentionSplits(s.kv_heads, pages, 0);
  const uint64_t partials = AttentionPartialBytes(s.rows, s.heads, s.dim, splits);
  BELLHOP_TRY_ASSIGN(m.cache, cuda::DeviceBuffer::Create(device, layer * m.layers, MemoryTag::kKvCache));
  BELLHOP_TRY_ASSIGN(m.inputs, cuda::DeviceBuffer::Create(device, ints.size() * 4, MemoryTag::kWorkspace));
  BELLHOP_TRY_ASSIGN(m.floats, cuda::DeviceBuffer::Create(device, floats * 4, MemoryTag::kWorkspace));
  BELLHOP_TRY_ASSIGN(m.terms, cuda::DeviceBuffer::Create(device, q_floats * 8, MemoryTag::kWorkspace));
  BELLHOP_TRY_ASSIGN(m.partials, cuda::DeviceBuffer::Create(device, partials, MemoryTag::kWorkspace));
  BELLHOP_TRY_ASSIGN(m.counters,
                     cuda::DeviceBuffer::Create(device, kMaxStepRows * s.kv_heads * 4, MemoryTag::kWorkspace));
  const uint64_t words = AttentionPartialBytes(1, s.heads, s.dim, splits);
  BELLHOP_TRY_ASSIGN(m.words, cuda::DeviceBuffer::Create(device, words, MemoryTag::kWorkspace));
  for (const cuda::DeviceBuffer* zero : {&m.counters, &m.words}) BELLHOP_TRY(cuda::FillZero(zero->bytes(), stream));
  std::vector<float> numbers(floats);
  std::mt19937 random(2);
  for (float& x : numbers) x = std::uniform_real_distribution<float>(-1, 1)(random);
  BELLHOP_TRY(Fill(m.floats, numbers.data(), numbers.size() * 4, stream));
  BELLHOP_TRY(FillCache(m.cache, stream));
  BELLHOP_TRY(Fill(m.inputs, ints.data(), ints.size() * 4, stream));
  return m;
}

Status Submit(cuda::Device* device, const Shape& s, const Memory& m, const cuda::Stream& stream) {
  const int64_t layer_bytes = static_cast<int64_t>(m.cache.size()) / m.layers;
  const int32_t pages = (s.positions + kKvPageTokens - 1) / kKvPageTokens;
  const int32_t* const ints = m.inputs.as<int32_t>().data();
  for (int32_t l = 0; l < m.layers; ++l) {
    // A page holds its positions of all layers, as in a model.
    const int64_t of_layer = layer_bytes / pages / s.rows, page_bytes = of_layer * m.layers;
    uint8_t* const keys = m.cache.as<uint8_t>().data() + l * of_layer;
    const int32_t columns = s.heads * s.dim;
    const AttendArgs args = {
        .step =
            {.rows = s.rows, .active_rows = ints, .positions = ints + 1, .block_tables = ints + 64, .max_pages = pages},
        .kv = {.keys = keys,
               .values = keys + of_layer / 2,
               .page_bytes = page_bytes,
               .type = s.type,
               .kv_heads = s.kv_heads,
               .key_dim = s.dim,
               .value_dim = s.dim},
        .heads = s.heads,
        .q = m.floats.as<float>().data(),
        .q_stride = columns,
        .scale = 0.1f,
        .out = {.data = m.terms.as<uint16_t>().data(),
                .sums = m.terms.as<float>().data() + int64_t{s.rows} * columns,  // behind two terms of two bytes
                .stride = columns},
        .partials = m.partials.as<float>().data(),
        .words = m.words.as<float>().data(),
        .counters = m.counters.as<uint32_t>().data(),
        .expected_visible = int64_t{s.rows} * s.positions};
    if (s.rows > 1) {
      BELLHOP_CUDA_CHECK(device, LaunchAttention(args, stream.queue()));
      continue;
    }
    float* const floats = m.floats.as<float>().data();
    const FinishQkvArgs finish = {.step = args.step,
                                  .kv = args.kv,
                                  .heads = s.heads,
                                  .qkv = floats,
                                  .stride = columns,
                                  .k_offset = columns,
                                  .v_offset = columns + s.kv_heads * s.dim,
                                  .norm = HeadNorm::kPerHead,
                                  .q_norm = floats,
                                  .k_norm = floats,
                                  .q_epsilon = 1e-6f,
                                  .k_epsilon = 1e-6f,
                                  .rope = RopeOrder::kNeox,
                                  .rope_table = floats + columns + 2 * s.kv_heads * s.dim,
                                  .rope_dims = s.dim,
                                  .reads_ahead = true};
    BELLHOP_CUDA_CHECK(device, LaunchFinishAndAttend(finish, args, stream.queue()));
  }
  return Status();
}

Status Measure(cuda::Device* device, const Shape& s, double ceiling) {
  BELLHOP_TRY_ASSIGN(const cuda::Stream stream, cuda::Stream::Create(device));
  BELLHOP_TRY_ASSIGN(const Memory memory, Allocate(device, s, stream));
  BELLHOP_TRY_ASSIGN(const auto graph, cuda::Graph::Capture(stream, [&] { return Submit(device, s, memory, stream); }));
  BELLHOP_TRY_ASSIGN(const auto exec, cuda::GraphExec::Create(graph, stream));
  BELLHOP_TRY_ASSIGN(const auto start, cuda::Event::Create(device, cuda::Event::Kind::kTiming));
  BELLHOP_TRY_ASSIGN(const auto end, cuda::Event::Create(device, cuda::Event::Kind::kTiming));
  std::vector<double> us;
  for (int i = 0; i < kSamples + 3; ++i) {
    BELLHOP_TRY(start.Record(stream));
    BELLHOP_TRY(exec.Launch(stream));
    BELLHOP_TRY(end.Record(stream));
    BELLHOP_TRY(end.Synchronize());
    BELLHOP_TRY_ASSIGN(const double ms, end.MillisecondsSince(start));
    if (i >= 3) us.push_back(ms * 1000 / memory.layers);
  }
  std::sort(us.begin(), us.end());
  const double bytes = 2.0 * s.rows * s.positions * s.kv_heads * s.dim * static_cast<double>(KvTypeBytes(s.type));
  const double median = us[us.size() / 2], gb_per_s = bytes / median / 1000;
  std::printf("%-14s rows %2d positions %5d: %8.2f us (%.2f .. %.2f) %7.0f GB/s, %3.0f %% of %.0f\n", s.name, s.rows,
              s.positions, median, us.front(), us.back(), gb_per_s, 100 * gb_per_s / ceiling, ceiling);
  return Status();
}

Status Main(double ceiling) {
  cuda::MemoryLedger ledger;
  BELLHOP_TRY_ASSIGN(const auto device, cuda::Device::Open(DeviceId(0), &ledger));
  for (const Shape& shape : kShapes) BELLHOP_TRY(Measure(device.get(), shape, ceiling));
  return Status();
}

}  // namespace
}  // namespace bellhop::kernels

int main(int argc, char** argv) {
  const bellhop::Status status = bellhop::kernels::Main(argc > 1 ? std::atof(argv[1]) : 4600);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
