#include "text/pretokenizer_regex.h"

#include <pcre2.h>

#include <cstdint>
#include <utility>

namespace bellhop::text {
namespace {

constexpr size_t kJitStackStartBytes = 32 << 10;
constexpr size_t kJitStackMaxBytes = 1 << 20;
constexpr uint32_t kHeapLimitKib = 64 << 10;

// Unicode White_Space, as the inside of a character class.
constexpr std::string_view kWhiteSpace =
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

// Spells out \s and \S. \S inside a class has no such spelling; no pattern here needs it.
Result<std::string> ExpandWhiteSpace(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 'S' && in_class) return InvalidArgument("regex {}: \\S inside a class is not supported", pattern);
      if (next != 's' && next != 'S') {
        out.append({c, next});
      } else if (in_class) {
        out.append(kWhiteSpace);
      } else {
        out.append(next == 's' ? "[" : "[^").append(kWhiteSpace).append("]");
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out.push_back(c);
  }
  return out;
}

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  const int length = pcre2_get_error_message(code, buffer, sizeof(buffer));
  return length < 0 ? fmt::format("PCRE2 error {}", code)
                    : std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length));
}

}  // namespace

struct RegexScratch::Impl {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~Impl() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

RegexScratch::RegexScratch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch& RegexScratch::operator=(RegexScratch&&) noexcept = default;
RegexScratch::~RegexScratch() = default;

Result<RegexScratch> RegexScratch::Create() {
  auto impl = std::make_unique<Impl>();
  impl->data = pcre2_match_data_create(1, nullptr);
  impl->context = pcre2_match_context_create(nullptr);
  if (impl->data == nullptr || impl->context == nullptr) return OutOfMemory("no memory for a regex match");
  pcre2_set_heap_limit(impl->context, kHeapLimitKib);
  // Null where PCRE2 was built without a JIT; the machine stack's 32 KiB are used when it cannot be had.
  impl->stack = pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr);
  if (impl->stack != nullptr) pcre2_jit_stack_assign(impl->context, nullptr, impl->stack);
  return RegexScratch(std::move(impl));
}

struct Regex::Impl {
  pcre2_code* code = nullptr;

  ~Impl() { pcre2_code_free(code); }
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::Compile(std::string_view pattern, bool allow_jit) {
  BELLHOP_TRY_ASSIGN(const std::string expanded, ExpandWhiteSpace(pattern));
  auto impl = std::make_unique<Impl>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;
  impl->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(), options, &error, &offset, nullptr);
  if (impl->code == nullptr) {
    return InvalidArgument("regex {}: {} at offset {}", expanded, ErrorText(error), offset);
  }
  // A failure leaves the code interpreted, which is slower and otherwise the same.
  if (allow_jit) pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE);
  return Regex(std::move(impl));
}

RegexMatch Regex::Find(std::string_view subject, size_t from, uint32_t max_steps, RegexScratch* scratch) const {
  const auto text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  RegexScratch::Impl& work = *scratch->impl_;
  pcre2_set_match_limit(work.context, max_steps);
  int rc = pcre2_match(impl_->code, text, subject.size(), from, PCRE2_NO_UTF_CHECK, work.data, work.context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(impl_->code, text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, work.data,
                     work.context);
  }
  if (rc == PCRE2_ERROR_NOMATCH) return {RegexOutcome::kNoMatch, 0, 0};
  if (rc < 0) return {RegexOutcome::kLimit, 0, 0};
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(work.data);
  return {RegexOutcome::kMatch, range[0], range[1]};
}

}  // namespace bellhop::text
