// The public header in C++: it compiles, nothing throws, and a callback that does is reported.
//   abi_cxx_test MODEL CORRUPT_FILE
#include <bellhop/bellhop.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "golden.h"

static_assert(noexcept(bellhop_abi_version()));
static_assert(noexcept(bellhop_generate(nullptr, nullptr, nullptr)));
static_assert(noexcept(bellhop_engine_destroy(nullptr)));

namespace {

int failures = 0;

void Check(bool good, const char* what) {
  if (good) return;
  char message[512];
  bellhop_last_error(message, sizeof(message));
  std::fprintf(stderr, "failed: %s (last error: %s)\n", what, message);
  ++failures;
}
#define CHECK(condition) Check((condition), #condition)

int32_t Throw(void*, const char*, size_t) { throw std::runtime_error("thrown by the callback"); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  CHECK(std::strlen(kText) > 0);
  bellhop_engine_options options;
  CHECK(bellhop_engine_options_init(&options, sizeof(options)) == BELLHOP_OK);
  options.model_path = argv[1];
  options.threads = 2;
  bellhop_engine* engine = nullptr;
  CHECK(bellhop_engine_create(&options, &engine) == BELLHOP_OK);
  if (engine == nullptr) return 1;

  bellhop_sampling_options sampling;
  CHECK(bellhop_sampling_options_init(&sampling, sizeof(sampling)) == BELLHOP_OK);
  sampling.greedy = 1;
  bellhop_generate_options generate;
  CHECK(bellhop_generate_options_init(&generate, sizeof(generate)) == BELLHOP_OK);
  generate.prompt = kIds;
  generate.prompt_count = sizeof(kIds) / sizeof(kIds[0]);
  generate.sampling = &sampling;
  generate.max_tokens = 4;
  generate.ignore_eos = 1;
  generate.on_text = Throw;
  CHECK(bellhop_generate(engine, &generate, nullptr) == BELLHOP_INTERNAL);
  char message[64];
  bellhop_last_error(message, sizeof(message));
  CHECK(std::string(message) == "thrown by the callback");

  // The engine is none the worse for it.
  generate.on_text = nullptr;
  CHECK(bellhop_generate(engine, &generate, nullptr) == BELLHOP_OK);
  int32_t ids[4];
  size_t count = 0;
  CHECK(bellhop_generated_tokens(engine, ids, 4, &count) == BELLHOP_OK);
  CHECK(count == 4 && std::memcmp(ids, kGreedy, sizeof(ids)) == 0);
  bellhop_engine_destroy(engine);
  return failures > 0 ? 1 : 0;
}
