/* A C program that uses every function of the public header on the shipped model.
 *   abi_test MODEL CORRUPT_FILE */
#include <bellhop/bellhop.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int failures = 0;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                             \
    }                                                                         \
  } while (0)

/* A status, with the message when it is another one. */
static void expect_status(bellhop_status got, bellhop_status want, int line) {
  char message[512];
  if (got == want) return;
  bellhop_last_error(message, sizeof(message));
  fprintf(stderr, "%s:%d: %s instead of %s: %s\n", __FILE__, line, bellhop_status_name(got), bellhop_status_name(want),
          message);
  ++failures;
}
#define OK(call) expect_status((call), BELLHOP_OK, __LINE__)
#define FAILS(call, status) expect_status((call), (status), __LINE__)

static int last_error_contains(const char* part) {
  char message[2048];
  bellhop_last_error(message, sizeof(message));
  return strstr(message, part) != NULL;
}

typedef struct log_state {
  int lines;
  int bad;
} log_state;

static void on_log(void* user, int32_t level, const char* message) {
  log_state* state = user;
  ++state->lines;
  if (message == NULL || level < BELLHOP_LOG_DEBUG || level > BELLHOP_LOG_ERROR) ++state->bad;
}

static bellhop_engine_options default_options(const char* model) {
  bellhop_engine_options options;
  OK(bellhop_engine_options_init(&options, sizeof(options)));
  options.model_path = model;
  options.threads = 1;
  return options;
}

static void test_version_and_names(void) {
  CHECK(bellhop_abi_version() == BELLHOP_ABI_VERSION);
  CHECK(strchr(bellhop_version(), '.') != NULL);
  CHECK(strcmp(bellhop_status_name(BELLHOP_OK), "ok") == 0);
  CHECK(strcmp(bellhop_status_name(BELLHOP_INVALID_ARGUMENT), "invalid argument") == 0);
  CHECK(strcmp(bellhop_status_name(BELLHOP_INTERNAL), "internal error") == 0);
  CHECK(strcmp(bellhop_status_name(BELLHOP_BUFFER_TOO_SMALL), "buffer too small") == 0);
  CHECK(strcmp(bellhop_status_name(-1), "unknown status") == 0);
  CHECK(strcmp(bellhop_status_name(10), "unknown status") == 0);
  CHECK(bellhop_last_error(NULL, 0) == 0); /* nothing has failed yet */
}

static void test_struct_sizes(const char* model) {
  union {
    bellhop_engine_options options;
    unsigned char bytes[sizeof(bellhop_engine_options) + 16];
  } newer;
  bellhop_engine* engine = NULL;
  bellhop_engine_options options = default_options(model);
  CHECK(options.struct_size == sizeof(options));
  CHECK(options.vram_bytes == BELLHOP_AUTO_BYTES && options.gpu_experts == -1 && options.gpu_experts_percent < 0);
  CHECK(options.pin_threads == 1 && options.batch_rows > 0 && options.log == NULL && options.isa == NULL);

  FAILS(bellhop_engine_options_init(NULL, sizeof(options)), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_engine_options_init(&options, offsetof(bellhop_engine_options, huge_pages) - 1),
        BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_engine_options_init(&options, 1u << 20), BELLHOP_INVALID_ARGUMENT);
  options.struct_size = 0;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  CHECK(last_error_contains("struct_size"));
  options.struct_size = (size_t)-1;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);

  /* A caller with the first header, which had neither huge_pages nor prefault. */
  options.huge_pages = options.prefault = 99;
  OK(bellhop_engine_options_init(&options, offsetof(bellhop_engine_options, huge_pages)));
  CHECK(options.huge_pages == 99 && options.prefault == 99);
  options.model_path = model;
  options.threads = 1;
  OK(bellhop_engine_create(&options, &engine));
  bellhop_engine_destroy(engine);

  /* A caller with a newer header: unknown fields must be zero. */
  memset(&newer, 0xAB, sizeof(newer));
  OK(bellhop_engine_options_init(&newer.options, sizeof(newer)));
  CHECK(newer.options.struct_size == sizeof(newer));
  CHECK(newer.bytes[sizeof(newer) - 1] == 0);
  newer.options.model_path = model;
  newer.options.threads = 1;
  newer.bytes[sizeof(newer) - 1] = 1;
  FAILS(bellhop_engine_create(&newer.options, &engine), BELLHOP_UNSUPPORTED);
  CHECK(engine == NULL);
  newer.bytes[sizeof(newer) - 1] = 0;
  OK(bellhop_engine_create(&newer.options, &engine));
  CHECK(engine != NULL);
  bellhop_engine_destroy(engine);
}

static void test_host_memory(const char* model) {
  bellhop_engine* engine = NULL;
  bellhop_engine_options options = default_options(model);
  CHECK(options.huge_pages == BELLHOP_HUGE_PAGES_OFF && options.prefault == BELLHOP_PREFAULT_AUTO);
  options.huge_pages = BELLHOP_HUGE_PAGES_AUTO;
  options.prefault = BELLHOP_PREFAULT_REQUIRED;
  OK(bellhop_engine_create(&options, &engine));
  bellhop_engine_destroy(engine);
  options.huge_pages = 3;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  CHECK(last_error_contains("huge_pages"));
  options.huge_pages = BELLHOP_HUGE_PAGES_OFF;
  options.prefault = -1;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  options.prefault = BELLHOP_PREFAULT_REQUIRED;
  options.ram_bytes = 20000000; /* less than the model */
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_OUT_OF_MEMORY);
  CHECK(last_error_contains("--prefault"));
}

static void test_create_errors(const char* model, const char* corrupt) {
  char small[8];
  size_t whole;
  bellhop_engine* engine = (bellhop_engine*)&small; /* must become NULL */
  bellhop_engine_options options = default_options("/nowhere/model.gguf");
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_NOT_FOUND);
  CHECK(engine == NULL);
  CHECK(last_error_contains("/nowhere/model.gguf"));
  whole = bellhop_last_error(small, sizeof(small));
  CHECK(whole > sizeof(small) && strlen(small) == sizeof(small) - 1);
  CHECK(bellhop_last_error(small, 0) == whole);

  options.model_path = corrupt;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_CORRUPT);
  options.model_path = NULL;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  CHECK(last_error_contains("model_path"));
  options.model_path = model;
  FAILS(bellhop_engine_create(&options, NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_engine_create(NULL, &engine), BELLHOP_INVALID_ARGUMENT);
  options.kv_type = 9;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  CHECK(last_error_contains("kv_type is 9"));
  options.kv_type = BELLHOP_KV_AUTO;
  options.pin_threads = 2;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  options.pin_threads = 1;
  options.isa = "mmx";
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  options.isa = NULL;
  options.gpu_experts = 1;
  options.gpu_experts_percent = 50;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  options.gpu_experts = -1;
  options.gpu_experts_percent = NAN;
  FAILS(bellhop_engine_create(&options, &engine), BELLHOP_INVALID_ARGUMENT);
  bellhop_engine_destroy(NULL);
}

static void test_null_engine(void) {
  size_t size = 0;
  bellhop_engine_info info;
  info.struct_size = sizeof(info);
  FAILS(bellhop_engine_get_info(NULL, &info), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_engine_get_plan(NULL, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_tokenize(NULL, "a", 1, 0, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_detokenize(NULL, kIds, 1, 0, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_token_text(NULL, 1, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_apply_chat_template(NULL, NULL, 0, 0, NULL, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_generate(NULL, NULL, NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_generated_tokens(NULL, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_generated_text(NULL, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_logits(NULL, kIds, 1, 0, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_perplexity(NULL, kIds, 2, 2, NULL, NULL, NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_get_expert_stats(NULL, NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_route_counts(NULL, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_reset_stats(NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_count_routes(NULL, kIds, 1, NULL, NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_make_profile(NULL, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_cancel_create(NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_cancel_request(NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_cancel_reset(NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_sampling_options_init(NULL, sizeof(bellhop_sampling_options)), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_generate_options_init(NULL, sizeof(bellhop_generate_options)), BELLHOP_INVALID_ARGUMENT);
  bellhop_cancel_destroy(NULL);
}

static void test_info(bellhop_engine* engine) {
  char* plan;
  size_t bytes = 0;
  bellhop_engine_info info;
  info.struct_size = sizeof(info) - 8;
  FAILS(bellhop_engine_get_info(engine, &info), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_engine_get_info(engine, NULL), BELLHOP_INVALID_ARGUMENT);
  info.struct_size = sizeof(info);
  OK(bellhop_engine_get_info(engine, &info));
  CHECK(strcmp(info.architecture, "qwen3moe") == 0);
  CHECK(info.layers > 0 && info.experts > info.experts_used && info.experts_used > 0 && info.vocab > 1000);
  CHECK(info.threads == 1 && info.has_chat_template == 1 && info.context > 0 && info.file_bytes > 1000000);
  CHECK(strlen(info.isa) > 0 && strcmp(info.kv_type, "f16") == 0);

  OK(bellhop_engine_get_plan(engine, NULL, 0, &bytes));
  CHECK(bytes > 20);
  plan = malloc(bytes + 1);
  OK(bellhop_engine_get_plan(engine, plan, bytes + 1, &bytes));
  CHECK(strlen(plan) == bytes && strchr(plan, '\n') != NULL);
  free(plan);
}

static void test_tokens(bellhop_engine* engine) {
  int32_t ids[COUNT(kIds) + 1];
  char text[64];
  size_t size = 0, i;
  OK(bellhop_tokenize(engine, kText, strlen(kText), BELLHOP_TOKENIZE_ADD_SPECIAL, NULL, 0, &size));
  CHECK(size == COUNT(kIds));
  ids[0] = -5;
  size = 0;
  FAILS(bellhop_tokenize(engine, kText, strlen(kText), BELLHOP_TOKENIZE_ADD_SPECIAL, ids, COUNT(kIds) - 1, &size),
        BELLHOP_BUFFER_TOO_SMALL);
  CHECK(size == COUNT(kIds) && ids[0] == -5); /* the needed size; nothing written */
  ids[COUNT(kIds)] = -7;
  OK(bellhop_tokenize(engine, kText, strlen(kText), BELLHOP_TOKENIZE_ADD_SPECIAL, ids, COUNT(kIds), &size));
  for (i = 0; i < COUNT(kIds); ++i) CHECK(ids[i] == kIds[i]);
  CHECK(ids[COUNT(kIds)] == -7);
  OK(bellhop_tokenize(engine, NULL, 0, 0, NULL, 0, &size));
  CHECK(size == 0);
  FAILS(bellhop_tokenize(engine, NULL, 3, 0, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_tokenize(engine, kText, 3, 0, NULL, 0, NULL), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_tokenize(engine, kText, 3, 64, NULL, 0, &size), BELLHOP_INVALID_ARGUMENT);

  OK(bellhop_detokenize(engine, kIds, COUNT(kIds), 0, NULL, 0, &size));
  CHECK(size == strlen(kText));
  FAILS(bellhop_detokenize(engine, kIds, COUNT(kIds), 0, text, size, &size), BELLHOP_BUFFER_TOO_SMALL); /* no NUL */
  OK(bellhop_detokenize(engine, kIds, COUNT(kIds), 0, text, size + 1, &size));
  CHECK(strcmp(text, kText) == 0);
  FAILS(bellhop_detokenize(engine, NULL, 2, 0, text, sizeof(text), &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_detokenize(engine, kIds, 2, 2, text, sizeof(text), &size), BELLHOP_INVALID_ARGUMENT);

  OK(bellhop_token_text(engine, kIds[0], text, sizeof(text), &size));
  CHECK(size > 0 && strncmp(text, kText, size) == 0);
  FAILS(bellhop_token_text(engine, -1, text, sizeof(text), &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_token_text(engine, 1 << 30, text, sizeof(text), &size), BELLHOP_INVALID_ARGUMENT);
}

static void test_chat(bellhop_engine* engine) {
  static const char kWant[] = "<|im_start|>user\nDefine: abeyance<|im_end|>\n<|im_start|>assistant\n";
  const bellhop_message messages[] = {{"user", "Define: abeyance"}};
  const bellhop_message broken[] = {{"user", NULL}};
  char text[128];
  int32_t with_chat[64], with_both[64];
  size_t size = 0, chat = 0, both = 0;
  OK(bellhop_apply_chat_template(engine, messages, 1, 1, NULL, NULL, 0, &size));
  CHECK(size == strlen(kWant));
  FAILS(bellhop_apply_chat_template(engine, messages, 1, 1, NULL, text, 10, &size), BELLHOP_BUFFER_TOO_SMALL);
  OK(bellhop_apply_chat_template(engine, messages, 1, 1, "{\"unused\": 1}", text, sizeof(text), &size));
  CHECK(strcmp(text, kWant) == 0);
  FAILS(bellhop_apply_chat_template(engine, messages, 1, 1, "[1", text, sizeof(text), &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_apply_chat_template(engine, messages, 1, 1, "[]", text, sizeof(text), &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_apply_chat_template(engine, broken, 1, 1, NULL, text, sizeof(text), &size), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_apply_chat_template(engine, NULL, 1, 1, NULL, text, sizeof(text), &size), BELLHOP_INVALID_ARGUMENT);
  OK(bellhop_tokenize(engine, text, strlen(text), BELLHOP_TOKENIZE_CHAT, with_chat, COUNT(with_chat), &chat));
  OK(bellhop_tokenize(engine, text, strlen(text), BELLHOP_TOKENIZE_ADD_SPECIAL | BELLHOP_TOKENIZE_PARSE_SPECIAL,
                      with_both, COUNT(with_both), &both));
  CHECK(chat == 16 && both == chat && memcmp(with_chat, with_both, chat * sizeof(int32_t)) == 0);
}

typedef struct stream {
  bellhop_engine* engine;
  char text[4096];
  size_t bytes;
  int calls;
  int stop_after; /* calls; 0: never */
} stream;

static int32_t on_text(void* user, const char* text, size_t bytes) {
  stream* s = user;
  char token[64];
  size_t size = 0;
  ++s->calls;
  if (s->bytes + bytes < sizeof(s->text)) memcpy(s->text + s->bytes, text, bytes);
  s->bytes += bytes;
  /* What is marked [callback] works here; what is not says so. */
  OK(bellhop_token_text(s->engine, kIds[0], token, sizeof(token), &size));
  FAILS(bellhop_reset_stats(s->engine), BELLHOP_INVALID_ARGUMENT);
  return s->stop_after > 0 && s->calls >= s->stop_after;
}

static bellhop_generate_options greedy_options(bellhop_sampling_options* sampling, int32_t max_tokens) {
  bellhop_generate_options options;
  OK(bellhop_sampling_options_init(sampling, sizeof(*sampling)));
  sampling->greedy = 1;
  OK(bellhop_generate_options_init(&options, sizeof(options)));
  options.prompt = kIds;
  options.prompt_count = COUNT(kIds);
  options.sampling = sampling;
  options.max_tokens = max_tokens;
  options.ignore_eos = 1;
  return options;
}

static void test_greedy_generation(bellhop_engine* engine) {
  stream s = {0};
  int32_t ids[8];
  char text[512];
  size_t size = 0, i;
  bellhop_sampling_options sampling;
  bellhop_generate_options options = greedy_options(&sampling, 8);
  bellhop_generate_result result;
  s.engine = engine;
  options.on_text = on_text;
  options.on_text_user = &s;
  result.struct_size = sizeof(result);
  OK(bellhop_generate(engine, &options, &result));
  CHECK(result.token_count == 8 && result.reason == BELLHOP_FINISH_LENGTH);
  CHECK(result.prompt_tokens == (int32_t)COUNT(kIds) && result.prompt_ms > 0 && result.decode_ms > 0);
  FAILS(bellhop_generated_tokens(engine, ids, 7, &size), BELLHOP_BUFFER_TOO_SMALL);
  CHECK(size == 8);
  OK(bellhop_generated_tokens(engine, ids, 8, &size));
  for (i = 0; i < 8; ++i) CHECK(ids[i] == kGreedy[i]);
  OK(bellhop_generated_text(engine, text, sizeof(text), &size));
  CHECK(size == result.text_bytes && strlen(text) == size);
  CHECK(s.calls > 0 && s.bytes == size && memcmp(s.text, text, size) == 0);
  FAILS(bellhop_generated_text(engine, text, size, &size), BELLHOP_BUFFER_TOO_SMALL);

  /* A result struct is no duty, and the wrong size of one costs no generation. */
  OK(bellhop_generate(engine, &options, NULL));
  result.struct_size = 3;
  FAILS(bellhop_generate(engine, &options, &result), BELLHOP_INVALID_ARGUMENT);
  OK(bellhop_generated_tokens(engine, NULL, 0, &size));
  CHECK(size == 8);
}

static void test_generation_ends(bellhop_engine* engine) {
  stream s = {0};
  char text[512], stop_text[4];
  const char* stops[2];
  size_t size = 0;
  bellhop_sampling_options sampling;
  bellhop_generate_options options = greedy_options(&sampling, 24);
  bellhop_generate_result result;
  result.struct_size = sizeof(result);
  OK(bellhop_generate(engine, &options, &result));
  OK(bellhop_generated_text(engine, text, sizeof(text), &size));
  CHECK(size > 30);
  memcpy(stop_text, text + 20, 3);
  stop_text[3] = '\0';
  stops[0] = "never in the text";
  stops[1] = stop_text;
  options.stop = stops;
  options.stop_count = 2;
  OK(bellhop_generate(engine, &options, &result));
  CHECK(result.reason == BELLHOP_FINISH_STOP);
  CHECK(result.text_bytes == (size_t)(strstr(text, stop_text) - text));
  stops[0] = NULL;
  FAILS(bellhop_generate(engine, &options, &result), BELLHOP_INVALID_ARGUMENT);

  /* The callback ends generation, and is not called again. */
  options = greedy_options(&sampling, 24);
  s.engine = engine;
  s.stop_after = 2;
  options.on_text = on_text;
  options.on_text_user = &s;
  OK(bellhop_generate(engine, &options, &result));
  CHECK(result.reason == BELLHOP_FINISH_CALLBACK && s.calls == 2 && result.token_count < 24);
}

static void test_generation_options(bellhop_engine* engine) {
  bellhop_sampling_options sampling;
  bellhop_generate_options options = greedy_options(&sampling, 8);
  bellhop_generate_result result;
  bellhop_logit_bias ban;
  int32_t first[8], second[8];
  size_t size = 0;
  result.struct_size = sizeof(result);

  ban.id = kGreedy[0];
  ban.bias = -INFINITY;
  sampling.logit_bias = &ban;
  sampling.logit_bias_count = 1;
  OK(bellhop_generate(engine, &options, &result));
  OK(bellhop_generated_tokens(engine, first, 8, &size));
  CHECK(first[0] != kGreedy[0]);

  OK(bellhop_sampling_options_init(&sampling, sizeof(sampling)));
  sampling.seed = 7;
  sampling.temperature = 3.0f;
  OK(bellhop_generate(engine, &options, &result));
  OK(bellhop_generated_tokens(engine, first, 8, &size));
  OK(bellhop_generate(engine, &options, &result));
  OK(bellhop_generated_tokens(engine, second, 8, &size));
  CHECK(memcmp(first, second, sizeof(first)) == 0);
  sampling.seed = 8;
  OK(bellhop_generate(engine, &options, &result));
  OK(bellhop_generated_tokens(engine, second, 8, &size));
  CHECK(memcmp(first, second, sizeof(first)) != 0);

  options.sampling = NULL;
  OK(bellhop_generate(engine, &options, NULL));
  options.sampling = &sampling;
  sampling.temperature = -1;
  FAILS(bellhop_generate(engine, &options, &result), BELLHOP_INVALID_ARGUMENT);
  sampling.temperature = 1;
  sampling.reserved = 1;
  FAILS(bellhop_generate(engine, &options, &result), BELLHOP_INVALID_ARGUMENT);
  sampling.reserved = 0;
  sampling.struct_size = 4;
  FAILS(bellhop_generate(engine, &options, &result), BELLHOP_INVALID_ARGUMENT);
  sampling.struct_size = sizeof(sampling);
  options.max_tokens = -2;
  FAILS(bellhop_generate(engine, &options, &result), BELLHOP_INVALID_ARGUMENT);
  options.max_tokens = 8;
  options.prompt_count = 0;
  FAILS(bellhop_generate(engine, &options, &result), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_generate(engine, NULL, &result), BELLHOP_INVALID_ARGUMENT);
}

typedef struct cancel_state {
  bellhop_cancel* cancel;
  atomic_int begun;
} cancel_state;

static int32_t announce(void* user, const char* text, size_t bytes) {
  cancel_state* state = user;
  (void)text;
  (void)bytes;
  atomic_store(&state->begun, 1);
  return 0;
}

static void* cancel_when_begun(void* user) {
  cancel_state* state = user;
  while (!atomic_load(&state->begun)) {
  }
  OK(bellhop_cancel_request(state->cancel));
  return NULL;
}

/* The engine shifts its context, so that nothing but the request ends the generation. */
static void test_cancel(const char* model) {
  cancel_state state;
  pthread_t thread;
  bellhop_engine* engine = NULL;
  bellhop_engine_options engine_options = default_options(model);
  bellhop_sampling_options sampling;
  bellhop_generate_options options = greedy_options(&sampling, -1);
  bellhop_generate_result result;
  engine_options.context_tokens = 128;
  engine_options.context_shift = 1;
  OK(bellhop_engine_create(&engine_options, &engine));
  if (engine == NULL) return;
  result.struct_size = sizeof(result);
  OK(bellhop_cancel_create(&state.cancel));
  atomic_init(&state.begun, 0);
  options.cancel = state.cancel;
  options.on_text = announce;
  options.on_text_user = &state;
  CHECK(pthread_create(&thread, NULL, cancel_when_begun, &state) == 0);
  OK(bellhop_generate(engine, &options, &result));
  CHECK(result.reason == BELLHOP_FINISH_CANCELLED && result.token_count > 0);
  CHECK(pthread_join(thread, NULL) == 0);

  /* The request stands until it is reset. */
  OK(bellhop_generate(engine, &options, &result));
  CHECK(result.reason == BELLHOP_FINISH_CANCELLED && result.token_count == 0);
  OK(bellhop_cancel_reset(state.cancel));
  options.max_tokens = 4;
  OK(bellhop_generate(engine, &options, &result));
  CHECK(result.reason == BELLHOP_FINISH_LENGTH && result.token_count == 4);
  bellhop_engine_destroy(engine);
  bellhop_cancel_destroy(state.cancel);
}

static void on_progress(void* user, int64_t done, int64_t total) {
  int64_t* last = user;
  CHECK(done > *last && done <= total);
  *last = done;
}

static void test_evaluation(bellhop_engine* engine, int32_t vocab) {
  size_t count = 0, best = 0, i;
  int64_t progress = 0;
  float* logits = malloc(COUNT(kIds) * (size_t)vocab * sizeof(float));
  bellhop_perplexity_result result;
  OK(bellhop_logits(engine, kIds, COUNT(kIds), 1, NULL, 0, &count));
  CHECK(count == COUNT(kIds) * (size_t)vocab);
  FAILS(bellhop_logits(engine, kIds, COUNT(kIds), 0, logits, (size_t)vocab - 1, &count), BELLHOP_BUFFER_TOO_SMALL);
  CHECK(count == (size_t)vocab);
  OK(bellhop_logits(engine, kIds, COUNT(kIds), 0, logits, (size_t)vocab, &count));
  for (i = 1; i < (size_t)vocab; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  CHECK((int32_t)best == kGreedy[0]);
  OK(bellhop_logits(engine, kIds, COUNT(kIds), 1, logits, COUNT(kIds) * (size_t)vocab, &count));
  for (i = 0; i < count; ++i) {
    if (!isfinite(logits[i])) break;
  }
  CHECK(i == count);
  FAILS(bellhop_logits(engine, NULL, 3, 0, logits, (size_t)vocab, &count), BELLHOP_INVALID_ARGUMENT);
  FAILS(bellhop_logits(engine, kIds, 0, 0, logits, (size_t)vocab, &count), BELLHOP_INVALID_ARGUMENT);
  free(logits);

  result.struct_size = sizeof(result);
  OK(bellhop_perplexity(engine, kGreedy, COUNT(kGreedy), 16, on_progress, &progress, &result));
  CHECK(result.windows == (int64_t)(COUNT(kGreedy) / 16) && progress == result.windows);
  CHECK(result.scored == result.windows * 15 && result.perplexity > 1 && isfinite(result.perplexity));
  CHECK(fabs(exp(result.nll_sum / (double)result.scored) - result.perplexity) < 1e-6 * result.perplexity);
  FAILS(bellhop_perplexity(engine, kGreedy, COUNT(kGreedy), 1, NULL, NULL, &result), BELLHOP_INVALID_ARGUMENT);
  result.struct_size = 1;
  FAILS(bellhop_perplexity(engine, kGreedy, COUNT(kGreedy), 16, NULL, NULL, &result), BELLHOP_INVALID_ARGUMENT);
}

static void test_experts(bellhop_engine* engine, const bellhop_engine_info* info) {
  const uint64_t routes = (uint64_t)COUNT(kIds) * (uint64_t)info->experts_used * (uint64_t)info->layers;
  uint64_t* counts;
  uint64_t sum = 0;
  unsigned char* profile;
  int64_t progress = 0;
  size_t count = 0, i;
  bellhop_expert_stats stats;
  stats.struct_size = sizeof(stats);
  OK(bellhop_reset_stats(engine));
  OK(bellhop_get_expert_stats(engine, &stats));
  CHECK(stats.hits == 0 && stats.misses == 0);
  OK(bellhop_count_routes(engine, kIds, COUNT(kIds), on_progress, &progress));
  CHECK(progress == (int64_t)COUNT(kIds));
  OK(bellhop_get_expert_stats(engine, &stats));
  CHECK(stats.hits + stats.misses == routes);
  CHECK(stats.experts == info->experts && stats.layers == info->layers && stats.total == info->experts * info->layers);
  OK(bellhop_route_counts(engine, NULL, 0, &count));
  CHECK(count == (size_t)(stats.layers * stats.experts));
  counts = malloc(count * sizeof(*counts));
  FAILS(bellhop_route_counts(engine, counts, count - 1, &count), BELLHOP_BUFFER_TOO_SMALL);
  OK(bellhop_route_counts(engine, counts, count, &count));
  for (i = 0; i < count; ++i) sum += counts[i];
  CHECK(sum == routes);
  free(counts);
  stats.struct_size = 8;
  FAILS(bellhop_get_expert_stats(engine, &stats), BELLHOP_INVALID_ARGUMENT);

  OK(bellhop_make_profile(engine, NULL, 0, &count));
  CHECK(count > 16);
  profile = malloc(count);
  FAILS(bellhop_make_profile(engine, profile, count - 1, &count), BELLHOP_BUFFER_TOO_SMALL);
  OK(bellhop_make_profile(engine, profile, count, &count));
  CHECK(memcmp(profile, "STRP", 4) == 0);
  free(profile);
}

int main(int argc, char** argv) {
  log_state log = {0, 0};
  bellhop_engine* engine = NULL;
  bellhop_engine_options options;
  bellhop_engine_info info;
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL CORRUPT_FILE\n", argv[0]);
    return 2;
  }
  test_version_and_names();
  test_struct_sizes(argv[1]);
  test_host_memory(argv[1]);
  test_create_errors(argv[1], argv[2]);
  test_null_engine();
  test_cancel(argv[1]);

  options = default_options(argv[1]);
  options.log = on_log;
  options.log_user = &log;
  OK(bellhop_engine_create(&options, &engine));
  if (engine == NULL) return 1;
  CHECK(log.lines > 0 && log.bad == 0);
  test_info(engine);
  test_tokens(engine);
  test_chat(engine);
  test_greedy_generation(engine);
  test_generation_ends(engine);
  test_generation_options(engine);
  info.struct_size = sizeof(info);
  OK(bellhop_engine_get_info(engine, &info));
  test_evaluation(engine, info.vocab);
  test_experts(engine, &info);
  bellhop_engine_destroy(engine);
  if (failures > 0) fprintf(stderr, "%d checks failed\n", failures);
  return failures > 0 ? 1 : 0;
}
