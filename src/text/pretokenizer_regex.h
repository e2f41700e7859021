// A compiled Unicode regular expression (PCRE2) whose matching cannot run away and is safe from many threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace bellhop::text {

enum class RegexOutcome { kMatch, kNoMatch, kLimit };

struct RegexMatch {
  RegexOutcome outcome = RegexOutcome::kNoMatch;
  size_t begin = 0;
  size_t end = 0;
};

// Working memory of one thread for any number of regexes. Its size does not depend on the subject: the JIT stack is
// capped, and what outgrows it is matched by the interpreter, whose memory lies on the heap and is capped too.
class RegexScratch {
 public:
  static Result<RegexScratch> Create();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) noexcept;
  ~RegexScratch();

 private:
  friend class Regex;
  struct Impl;
  explicit RegexScratch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Immutable once compiled.
class Regex {
 public:
  // UTF-8 with Unicode properties. `\s` and `\S` mean Unicode White_Space (PCRE2's own \s also takes U+180E).
  // `allow_jit` false: interpreted, as on platforms without a JIT; results are the same.
  static Result<Regex> Compile(std::string_view pattern, bool allow_jit = true);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The leftmost match that begins at or after `from`. `subject` must be valid UTF-8 and `from` a character boundary.
  // kLimit: more than `max_steps` backtracking steps at one start position, or too much memory.
  RegexMatch Find(std::string_view subject, size_t from, uint32_t max_steps, RegexScratch* scratch) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bellhop::text
