// What one render shares: its budgets, the factories that charge them, and the arena of mutable objects. Every loop of
// a builtin calls Step, so that no template can run or allocate without bound.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/jinja_value.h"

namespace bellhop::text {

using JinjaItems = std::shared_ptr<const JinjaList>;

// Longest chain of containers inside containers.
inline constexpr int kMaxValueDepth = 256;
// Bytes handled per step of the budget, for operations on whole strings.
inline constexpr int64_t kBytesPerStep = 256;

class JinjaRuntime {
 public:
  JinjaRuntime(const TemplateLimits& limits, int64_t now_unix_seconds) : limits_(limits), now_(now_unix_seconds) {}
  virtual ~JinjaRuntime() = default;
  JinjaRuntime(const JinjaRuntime&) = delete;
  JinjaRuntime& operator=(const JinjaRuntime&) = delete;

  const TemplateLimits& limits() const { return limits_; }
  int64_t now_unix_seconds() const { return now_; }

  // Takes `count` steps; fails when a budget is used up.
  Status Step(int64_t count = 1) {
    steps_ += count;
    if (steps_ <= limits_.max_steps && live_ <= limits_.max_live_bytes && deferred_.ok()) return Status();
    return BudgetError();
  }
  // Before making something of `bytes` bytes: bounds its size and charges the work.
  Status CheckBytes(int64_t bytes);

  JinjaValue String(std::string text);
  JinjaValue Markup(std::string text);
  // A string that is markup when `model` is.
  JinjaValue StringLike(const JinjaValue& model, std::string text) {
    return model.is_markup() ? Markup(std::move(text)) : String(std::move(text));
  }
  JinjaValue List(std::vector<JinjaValue> items);
  JinjaValue Tuple(std::vector<JinjaValue> items);
  JinjaValue Generator(std::vector<JinjaValue> items);
  JinjaValue Undefined(std::string message);
  JinjaValue Range(int64_t start, int64_t stop, int64_t step, int64_t count);
  JinjaValue DictView(JinjaDictView::Kind kind, const JinjaValue& dict);
  JinjaValue Function(const JinjaBuiltin& builtin, JinjaValue self);
  // Later duplicates replace earlier values; fails on keys that are not hashable.
  Result<JinjaValue> Dict(std::vector<std::pair<JinjaValue, JinjaValue>> entries);
  std::shared_ptr<JinjaLoop> Loop();

  // The items that iterating over `value` gives. Walking a generator uses it up.
  Result<JinjaItems> Items(const JinjaValue& value);
  // At most one item: what next(iter(value)) gives; empty result for an empty iterable.
  Result<JinjaItems> FirstItem(const JinjaValue& value);

  JinjaNamespace* NewNamespace();
  JinjaMacro* NewMacro(const JinjaMacroDef& def, JinjaScope* scope);
  JinjaCycler* NewCycler(std::vector<JinjaValue> items);
  JinjaJoiner* NewJoiner(std::string separator);
  // Charges arena memory, which stays until the render ends.
  void ChargeArena(int64_t bytes) { live_ += bytes; }
  // The arguments that loop.changed() saw last; slots are numbered from 1.
  std::vector<JinjaValue>& ChangedSlot(size_t* slot);

  // Members of `loop`; only the interpreter can look ahead in a loop with a condition.
  virtual Result<JinjaValue> LoopAttribute(const JinjaValue& loop, std::string_view name) = 0;
  // map() and select() call filters and tests by name.
  virtual Status EnterCall() = 0;
  virtual void LeaveCall() = 0;

 private:
  Status BudgetError() const;
  // Containers deeper than kMaxValueDepth are refused at the next Step.
  int ContainerDepth(int below);

  TemplateLimits limits_;
  int64_t now_;
  int64_t steps_ = 0;
  int64_t live_ = 0;  // outlives the arenas below, whose values return their charge
  Status deferred_;
  std::deque<JinjaNamespace> namespaces_;
  std::deque<JinjaMacro> macros_;
  std::deque<JinjaCycler> cyclers_;
  std::deque<JinjaJoiner> joiners_;
  std::deque<std::vector<JinjaValue>> changed_;
};

// JSON to values, outside the account, since the context is the caller's. Fails when it is nested too deeply.
Result<JinjaValue> ValueFromJson(const nlohmann::ordered_json& json, int depth = 0);

// The entry with that key, or null. Keys that cannot be hashed are an error.
Result<const JinjaValue*> DictFind(JinjaRuntime& rt, const JinjaDict& dict, const JinjaValue& key);
const JinjaValue* DictFind(const JinjaDict& dict, std::string_view key);

}  // namespace bellhop::text
