// Runs a fuzz target without libFuzzer: replays the seeds, then a fixed number of mutations of them. The same arguments
// give the same inputs, on every machine.
//
//   gguf_fuzz [--runs=2000] [--seed=1] [--keep=FILE] SEED_FILE_OR_FOLDER...
//
// --keep writes each input to FILE before it runs, so that the one which crashed is left there.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

struct Options {
  uint64_t runs = 2000;
  uint64_t seed = 1;
  std::string keep;
  std::vector<std::string> paths;
};

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& seeds, uint64_t seed) : seeds_(seeds), random_(seed) {}

  Bytes Next() {
    Bytes out = Pick(seeds_);
    const uint64_t steps = 1 + Below(4);
    for (uint64_t i = 0; i < steps; ++i) Step(&out);
    return out;
  }

 private:
  // Raw engine output and a remainder: library distributions differ between implementations.
  uint64_t Below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const Bytes& Pick(const std::vector<Bytes>& from) { return from[Below(from.size())]; }

  void Step(Bytes* bytes) {
    switch (Below(7)) {
      case 0: FlipBit(bytes); break;
      case 1: SetByte(bytes); break;
      case 2: SetNumber(bytes); break;
      case 3: bytes->resize(Below(bytes->size() + 1)); break;
      case 4: Erase(bytes); break;
      case 5: Insert(bytes, *bytes); break;
      case 6: Insert(bytes, Pick(seeds_)); break;
    }
  }

  void FlipBit(Bytes* bytes) {
    if (!bytes->empty()) (*bytes)[Below(bytes->size())] ^= static_cast<uint8_t>(1u << Below(8));
  }

  void SetByte(Bytes* bytes) {
    if (!bytes->empty()) (*bytes)[Below(bytes->size())] = static_cast<uint8_t>(Below(256));
  }

  void SetNumber(Bytes* bytes) {
    static constexpr uint64_t kNumbers[] = {0,
                                            1,
                                            2,
                                            16,
                                            255,
                                            256,
                                            0x7FFFFFFF,
                                            0x80000000,
                                            0xFFFFFFFF,
                                            1ull << 32,
                                            (1ull << 42) + 1,
                                            (1ull << 61) + 1,
                                            (1ull << 63) - 1,
                                            1ull << 63,
                                            ~0ull,
                                            ~7ull};
    const size_t width = size_t{1} << Below(4);
    if (bytes->size() < width) return;
    const uint64_t number = kNumbers[Below(std::size(kNumbers))];
    for (size_t i = 0, at = Below(bytes->size() - width + 1); i < width; ++i) {
      (*bytes)[at + i] = static_cast<uint8_t>(number >> (8 * i));
    }
  }

  void Erase(Bytes* bytes) {
    const size_t at = Below(bytes->size());
    const size_t count = std::min<size_t>(1 + Below(32), bytes->size() - at);
    bytes->erase(bytes->begin() + static_cast<ptrdiff_t>(at), bytes->begin() + static_cast<ptrdiff_t>(at + count));
  }

  void Insert(Bytes* bytes, Bytes from) {
    const size_t begin = Below(from.size());
    const size_t count = std::min<size_t>(1 + Below(64), from.size() - begin);
    const auto at = bytes->begin() + static_cast<ptrdiff_t>(Below(bytes->size() + 1));
    bytes->insert(at, from.begin() + static_cast<ptrdiff_t>(begin),
                  from.begin() + static_cast<ptrdiff_t>(begin + count));
  }

  const std::vector<Bytes>& seeds_;
  std::mt19937_64 random_;
};

bool ParseArguments(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value_of = [&](std::string_view name) {
      return argument.compare(0, name.size(), name) == 0 ? argument.c_str() + name.size() : nullptr;
    };
    if (const char* runs = value_of("--runs=")) {
      options->runs = std::strtoull(runs, nullptr, 10);
    } else if (const char* seed = value_of("--seed=")) {
      options->seed = std::strtoull(seed, nullptr, 10);
    } else if (const char* keep = value_of("--keep=")) {
      options->keep = keep;
    } else if (argument.compare(0, 2, "--") == 0) {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return false;
    } else {
      options->paths.push_back(argument);
    }
  }
  return true;
}

// Files below `paths`, in name order so that the inputs do not depend on the file system.
std::vector<Bytes> ReadSeeds(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    std::vector<fs::path> inside;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) inside.push_back(entry.path());
    }
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  std::vector<Bytes> seeds;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "cannot read seed %s\n", file.c_str());
      std::exit(2);
    }
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return seeds;
}

void RunOne(const Bytes& bytes, const Options& options) {
  if (!options.keep.empty()) {
    std::ofstream(options.keep, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  // A block of exactly this size: a sanitizer sees the first byte read behind it.
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
  LLVMFuzzerTestOneInput(exact.get(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!ParseArguments(argc, argv, &options)) return 2;
  const std::vector<Bytes> seeds = ReadSeeds(options.paths);
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds: name files or folders\n");
    return 2;
  }
  for (const Bytes& seed : seeds) RunOne(seed, options);
  Mutator mutator(seeds, options.seed);
  for (uint64_t i = 0; i < options.runs; ++i) RunOne(mutator.Next(), options);
  std::printf("%zu seeds and %llu mutations\n", seeds.size(), static_cast<unsigned long long>(options.runs));
  return 0;
}
