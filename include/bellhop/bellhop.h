/* Bellhop's C interface (C11 and C++): loads a Mixture-of-Experts or dense language model and runs it.
 *
 * Rules that hold for every function
 * - Failure is a bellhop_status other than BELLHOP_OK; bellhop_last_error() has the message, for the calling thread.
 *   Nothing aborts, prints or throws.
 * - Structs that go in or out begin with `struct_size`, the sizeof the caller was compiled with. Option structs are
 *   filled by their _init function first. Later versions only append fields, so programs and libraries of different
 *   age work together: fields that a caller does not know have their defaults; fields that the library does not know
 *   must be zero.
 * - Results go to memory of the caller. A function with `buffer`, `capacity` and a size pointer stores the size that it
 *   needs there on every call. With buffer NULL it does nothing else and succeeds; with too little capacity it fails
 *   with BELLHOP_BUFFER_TOO_SMALL and leaves the buffer alone. Sizes of text do not count the terminating NUL, which is
 *   always written: capacity must be one more.
 * - Text is UTF-8. Pointers in option structs are read during the call alone, except `log` and `log_user`.
 * - Flags of type int32_t are 0 or 1.
 *
 * Threads
 * - An engine runs one call at a time, from any thread; a second one that arrives meanwhile fails with
 *   BELLHOP_INVALID_ARGUMENT. Different engines are independent.
 * - Functions marked [callback] may also be called for the same engine from inside its callbacks.
 * - bellhop_cancel_request may be called from any thread at any time, but not from a signal handler.
 * - Callbacks run on the thread that made the call; `log` may run on others too, one at a time.
 */
#ifndef BELLHOP_BELLHOP_H_
#define BELLHOP_BELLHOP_H_

#include <stddef.h>
#include <stdint.h>

/* Raised when something that a compiled program relies on changes; appended functions and fields do not count. */
#define BELLHOP_ABI_VERSION 1

#if defined(_WIN32)
#if defined(BELLHOP_BUILDING_LIBRARY)
#define BELLHOP_API __declspec(dllexport)
#else
#define BELLHOP_API
#endif
#elif defined(__GNUC__)
#define BELLHOP_API __attribute__((visibility("default")))
#else
#define BELLHOP_API
#endif

#if defined(__cplusplus)
#define BELLHOP_NOEXCEPT noexcept
extern "C" {
#else
#define BELLHOP_NOEXCEPT
#endif

/* ---- Status and version ---- */

typedef int32_t bellhop_status;
enum {
  BELLHOP_OK = 0,
  BELLHOP_INVALID_ARGUMENT = 1,
  BELLHOP_NOT_FOUND = 2,
  BELLHOP_CORRUPT = 3,
  BELLHOP_UNSUPPORTED = 4,
  BELLHOP_OUT_OF_MEMORY = 5,
  BELLHOP_IO = 6,
  BELLHOP_CUDA = 7,
  BELLHOP_CANCELLED = 8,
  BELLHOP_INTERNAL = 9,
  BELLHOP_BUFFER_TOO_SMALL = 64
};

/* BELLHOP_ABI_VERSION of the library in use. */
BELLHOP_API uint32_t bellhop_abi_version(void) BELLHOP_NOEXCEPT;
/* "0.1.0"; static storage. */
BELLHOP_API const char* bellhop_version(void) BELLHOP_NOEXCEPT;
/* "invalid argument"; static storage, "unknown status" for other numbers. */
BELLHOP_API const char* bellhop_status_name(bellhop_status status) BELLHOP_NOEXCEPT;
/* The message of the last call that failed on this thread ("" if none did), cut to capacity - 1 bytes and always
 * terminated when capacity > 0. Returns its whole length. It says what failed, where, and what to do. */
BELLHOP_API size_t bellhop_last_error(char* buffer, size_t capacity) BELLHOP_NOEXCEPT;

/* ---- Log ---- */

enum { BELLHOP_LOG_DEBUG = 0, BELLHOP_LOG_INFO = 1, BELLHOP_LOG_WARNING = 2, BELLHOP_LOG_ERROR = 3 };
typedef void (*bellhop_log_fn)(void* user, int32_t level, const char* message);

/* ---- Engine ---- */

enum { BELLHOP_DEVICE_AUTO = 0, BELLHOP_DEVICE_CPU = 1, BELLHOP_DEVICE_CUDA = 2 };
enum { BELLHOP_KV_AUTO = 0, BELLHOP_KV_F32 = 1, BELLHOP_KV_F16 = 2, BELLHOP_KV_BF16 = 3 };
enum { BELLHOP_ACT_AUTO = 0, BELLHOP_ACT_F32 = 1 };
enum { BELLHOP_OFFLOAD_OFF = 0, BELLHOP_OFFLOAD_AUTO = 1, BELLHOP_OFFLOAD_REQUIRED = 2 };
enum { BELLHOP_MISS_LANE_AUTO = 0, BELLHOP_MISS_LANE_CPU = 1, BELLHOP_MISS_LANE_PCIE = 2, BELLHOP_MISS_LANE_SPLIT = 3 };
enum { BELLHOP_HUGE_PAGES_OFF = 0, BELLHOP_HUGE_PAGES_AUTO = 1, BELLHOP_HUGE_PAGES_REQUIRED = 2 };
enum { BELLHOP_PREFAULT_OFF = 0, BELLHOP_PREFAULT_AUTO = 1, BELLHOP_PREFAULT_REQUIRED = 2 };
#define BELLHOP_AUTO_BYTES UINT64_MAX

typedef struct bellhop_engine_options {
  size_t struct_size;
  const char* model_path;   /* a GGUF file, or any part of a split one; required */
  const char* isa;          /* "reference", "avx2", "avx512", "amx"; NULL: the best there is */
  const char* profile_path; /* expert popularity (STRP file); NULL: none */
  int32_t device;           /* BELLHOP_DEVICE_* */
  int32_t threads;          /* 0: one per physical core within the CPU quota */
  int32_t pin_threads;      /* flag; default 1 */
  int32_t deterministic;    /* flag */
  uint64_t vram_bytes;      /* budget; BELLHOP_AUTO_BYTES: what is free */
  uint64_t ram_bytes;
  int64_t gpu_experts;        /* experts per layer in GPU memory; -1: as the budget allows */
  double gpu_experts_percent; /* the same as a share; negative: as the budget allows */
  int32_t offload;            /* BELLHOP_OFFLOAD_* */
  int32_t miss_lane;          /* BELLHOP_MISS_LANE_* */
  uint32_t context_tokens;    /* 0: what the model was trained for, at most 8192 */
  uint32_t batch_rows;        /* prompt tokens that are computed together */
  int32_t kv_type;            /* BELLHOP_KV_* */
  int32_t act;                /* BELLHOP_ACT_*; F32: prompts with unrounded activations, for checking */
  int32_t context_shift;      /* flag: a full context drops its oldest half instead of ending generation */
  int32_t keep_tokens;        /* of the prompt, kept by a shift; -1: all */
  bellhop_log_fn log;         /* until the engine is destroyed; NULL: silence */
  void* log_user;
  int32_t huge_pages; /* BELLHOP_HUGE_PAGES_*; experts are copied to huge pages, which takes as much memory again */
  int32_t prefault;   /* BELLHOP_PREFAULT_*; the model is read into memory by bellhop_engine_create; AUTO: if it fits */
} bellhop_engine_options;

typedef struct bellhop_engine bellhop_engine;

/* Fills in the defaults. struct_size: sizeof(bellhop_engine_options). */
BELLHOP_API bellhop_status bellhop_engine_options_init(bellhop_engine_options* options,
                                                       size_t struct_size) BELLHOP_NOEXCEPT;
/* Loads the model. On failure *engine is NULL. The model's file is mapped for as long as the engine lives: replace it
 * by renaming another over it. Reads of a file that was shortened raise SIGBUS, for which this library has no handler.
 */
BELLHOP_API bellhop_status bellhop_engine_create(const bellhop_engine_options* options,
                                                 bellhop_engine** engine) BELLHOP_NOEXCEPT;
/* Returns all memory; no call on the engine may be running. NULL is ignored. */
BELLHOP_API void bellhop_engine_destroy(bellhop_engine* engine) BELLHOP_NOEXCEPT;

typedef struct bellhop_engine_info {
  size_t struct_size;       /* set by the caller */
  const char* architecture; /* text: static for the life of the engine */
  const char* name;
  const char* expert_formats; /* "Q4_0" */
  const char* dense_formats;  /* "Q8_0+F32" */
  const char* isa;
  const char* kv_type;
  uint64_t file_bytes;
  uint64_t parameters;
  uint64_t bytes_per_token; /* weight bytes that one decode step reads */
  int32_t layers;
  int32_t experts; /* per layer; 0: a dense model */
  int32_t experts_used;
  int32_t vocab;
  int32_t trained_context;
  int32_t context;
  int32_t threads;
  int32_t has_chat_template;
} bellhop_engine_info;

/* [callback] */
BELLHOP_API bellhop_status bellhop_engine_get_info(const bellhop_engine* engine,
                                                   bellhop_engine_info* info) BELLHOP_NOEXCEPT;
/* What the engine does and why: lines for people. */
BELLHOP_API bellhop_status bellhop_engine_get_plan(bellhop_engine* engine, char* buffer, size_t capacity,
                                                   size_t* bytes) BELLHOP_NOEXCEPT;

/* ---- Text ---- */

enum {
  BELLHOP_TOKENIZE_ADD_SPECIAL = 1,   /* BOS and EOS where the vocabulary says so */
  BELLHOP_TOKENIZE_PARSE_SPECIAL = 2, /* recognise control tokens in the text */
  /* The text is a rendered chat template: both of the above, without a second BOS after one that is written out. */
  BELLHOP_TOKENIZE_CHAT = 4
};

/* [callback] text need not be terminated. flags: BELLHOP_TOKENIZE_*. capacity and count are numbers of tokens. */
BELLHOP_API bellhop_status bellhop_tokenize(const bellhop_engine* engine, const char* text, size_t text_bytes,
                                            uint32_t flags, int32_t* ids, size_t capacity,
                                            size_t* count) BELLHOP_NOEXCEPT;
/* [callback] special: flag, give the text of control tokens too. */
BELLHOP_API bellhop_status bellhop_detokenize(const bellhop_engine* engine, const int32_t* ids, size_t count,
                                              int32_t special, char* buffer, size_t capacity,
                                              size_t* bytes) BELLHOP_NOEXCEPT;
/* [callback] The bytes of one token: maybe a part of a UTF-8 character, maybe with NUL bytes inside. */
BELLHOP_API bellhop_status bellhop_token_text(const bellhop_engine* engine, int32_t id, char* buffer, size_t capacity,
                                              size_t* bytes) BELLHOP_NOEXCEPT;

/* Never grows: an array of it is passed. */
typedef struct bellhop_message {
  const char* role; /* "system", "user", "assistant", ... */
  const char* content;
} bellhop_message;

/* [callback] Renders the model's chat template. extra_json: an object of further template variables, or NULL. */
BELLHOP_API bellhop_status bellhop_apply_chat_template(const bellhop_engine* engine, const bellhop_message* messages,
                                                       size_t count, int32_t add_generation_prompt,
                                                       const char* extra_json, char* buffer, size_t capacity,
                                                       size_t* bytes) BELLHOP_NOEXCEPT;

/* ---- Generation ---- */

/* A request to stop, for any number of calls at a time. */
typedef struct bellhop_cancel bellhop_cancel;
BELLHOP_API bellhop_status bellhop_cancel_create(bellhop_cancel** cancel) BELLHOP_NOEXCEPT;
/* Ends the calls that use it within one step, and later ones before their first. */
BELLHOP_API bellhop_status bellhop_cancel_request(bellhop_cancel* cancel) BELLHOP_NOEXCEPT;
/* Makes it usable again. Calls that were told to stop still do. */
BELLHOP_API bellhop_status bellhop_cancel_reset(bellhop_cancel* cancel) BELLHOP_NOEXCEPT;
/* No call may be using it. NULL is ignored. */
BELLHOP_API void bellhop_cancel_destroy(bellhop_cancel* cancel) BELLHOP_NOEXCEPT;

/* Never grows: an array of it is passed. */
typedef struct bellhop_logit_bias {
  int32_t id;
  float bias; /* added to the logit; -INFINITY bans the token */
} bellhop_logit_bias;

typedef struct bellhop_sampling_options {
  size_t struct_size;
  uint64_t seed;
  float temperature; /* 0: greedy */
  float top_p;       /* 1: off */
  float min_p;       /* 0: off */
  int32_t top_k;     /* 0 or -1: off */
  float repeat_penalty;
  float presence_penalty;
  float frequency_penalty;
  int32_t repeat_last_n; /* tokens that penalties look back on; -1: all */
  int32_t greedy;        /* flag: the likeliest token, whatever the fields above say */
  int32_t reserved;      /* 0 */
  const bellhop_logit_bias* logit_bias;
  size_t logit_bias_count;
} bellhop_sampling_options;

BELLHOP_API bellhop_status bellhop_sampling_options_init(bellhop_sampling_options* options,
                                                         size_t struct_size) BELLHOP_NOEXCEPT;

/* Complete UTF-8 characters, in order; not terminated. Nonzero ends generation: no further call follows. */
typedef int32_t (*bellhop_text_fn)(void* user, const char* text, size_t bytes);

typedef struct bellhop_generate_options {
  size_t struct_size;
  const int32_t* prompt; /* at least one token */
  size_t prompt_count;
  const bellhop_sampling_options* sampling; /* NULL: the defaults */
  int32_t max_tokens;                       /* -1: until the end of generation or the end of the context */
  int32_t ignore_eos;                       /* flag: go on after end-of-generation tokens */
  int32_t special;                          /* flag: give the text of control tokens too */
  int32_t reserved;                         /* 0 */
  const char* const* stop;                  /* strings that end generation; the text is cut before them */
  size_t stop_count;
  bellhop_cancel* cancel;  /* NULL: none */
  bellhop_text_fn on_text; /* NULL: none */
  void* on_text_user;
} bellhop_generate_options;

BELLHOP_API bellhop_status bellhop_generate_options_init(bellhop_generate_options* options,
                                                         size_t struct_size) BELLHOP_NOEXCEPT;

enum {
  BELLHOP_FINISH_STOP = 0,      /* a stop string */
  BELLHOP_FINISH_EOG = 1,       /* an end-of-generation token */
  BELLHOP_FINISH_LENGTH = 2,    /* max_tokens or the end of the context */
  BELLHOP_FINISH_CANCELLED = 3, /* bellhop_cancel_request */
  BELLHOP_FINISH_CALLBACK = 4   /* on_text returned nonzero */
};

typedef struct bellhop_generate_result {
  size_t struct_size; /* set by the caller */
  size_t token_count; /* generated; the token that ended generation does not count */
  size_t text_bytes;
  int32_t reason; /* BELLHOP_FINISH_* */
  int32_t prompt_tokens;
  int32_t reused_tokens; /* of the prompt, still there from the call before */
  int32_t context_shifts;
  double prompt_ms;
  double decode_ms;
} bellhop_generate_result;

/* Being cancelled is no failure. result may be NULL. */
BELLHOP_API bellhop_status bellhop_generate(bellhop_engine* engine, const bellhop_generate_options* options,
                                            bellhop_generate_result* result) BELLHOP_NOEXCEPT;
/* Tokens and text of the last successful bellhop_generate on this engine, until the next one begins. */
BELLHOP_API bellhop_status bellhop_generated_tokens(bellhop_engine* engine, int32_t* ids, size_t capacity,
                                                    size_t* count) BELLHOP_NOEXCEPT;
BELLHOP_API bellhop_status bellhop_generated_text(bellhop_engine* engine, char* buffer, size_t capacity,
                                                  size_t* bytes) BELLHOP_NOEXCEPT;

/* ---- Evaluation ---- */

/* Logits [rows][vocab] after each token of the prompt (all: 1) or after the last one (all: 0). capacity and count are
 * numbers of floats; they are known before anything is computed. */
BELLHOP_API bellhop_status bellhop_logits(bellhop_engine* engine, const int32_t* ids, size_t id_count, int32_t all,
                                          float* logits, size_t capacity, size_t* count) BELLHOP_NOEXCEPT;

typedef void (*bellhop_progress_fn)(void* user, int64_t done, int64_t total);

typedef struct bellhop_perplexity_result {
  size_t struct_size; /* set by the caller */
  double nll_sum;     /* of -ln p */
  double perplexity;
  double elapsed_ms;
  int64_t scored; /* tokens */
  int64_t windows;
} bellhop_perplexity_result;

/* Windows of `window` tokens, each scored from its second token on. progress may be NULL. */
BELLHOP_API bellhop_status bellhop_perplexity(bellhop_engine* engine, const int32_t* ids, size_t id_count,
                                              int32_t window, bellhop_progress_fn progress, void* progress_user,
                                              bellhop_perplexity_result* result) BELLHOP_NOEXCEPT;

/* ---- Experts ---- */

typedef struct bellhop_expert_stats {
  size_t struct_size; /* set by the caller */
  uint64_t hits;      /* routes whose expert was in GPU memory */
  uint64_t misses;
  int32_t resident; /* experts in GPU memory, of `total` in the model */
  int32_t total;
  int32_t layers; /* rows and columns of bellhop_route_counts */
  int32_t experts;
} bellhop_expert_stats;

/* Since the engine was made or bellhop_reset_stats. */
BELLHOP_API bellhop_status bellhop_get_expert_stats(bellhop_engine* engine,
                                                    bellhop_expert_stats* stats) BELLHOP_NOEXCEPT;
/* How often each expert was chosen: [layers][experts]; layers with fewer experts are filled up with zeros. */
BELLHOP_API bellhop_status bellhop_route_counts(bellhop_engine* engine, uint64_t* counts, size_t capacity,
                                                size_t* count) BELLHOP_NOEXCEPT;
BELLHOP_API bellhop_status bellhop_reset_stats(bellhop_engine* engine) BELLHOP_NOEXCEPT;
/* Runs tokens through the model for their routes alone. progress may be NULL. */
BELLHOP_API bellhop_status bellhop_count_routes(bellhop_engine* engine, const int32_t* ids, size_t id_count,
                                                bellhop_progress_fn progress, void* progress_user) BELLHOP_NOEXCEPT;
/* The routes counted so far as a popularity profile (STRP file), for bellhop_engine_options::profile_path. */
BELLHOP_API bellhop_status bellhop_make_profile(bellhop_engine* engine, void* buffer, size_t capacity,
                                                size_t* bytes) BELLHOP_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif /* BELLHOP_BELLHOP_H_ */
