// Values of the template language: Python's types as far as templates can see them. Strings and containers are
// immutable once made, so values share them freely; what can change (namespaces, macros' scopes, cyclers) lives in the
// runtime's arena and values point to it, which keeps reference cycles out of the counted objects.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bellhop::text {

class JinjaValue;
struct JinjaBuiltin;
struct JinjaMacroDef;
struct JinjaScope;
struct JinjaStmt;

enum class JinjaType : uint8_t {
  kMissing,  // an argument that was not passed; never visible to a template
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kDictView,   // keys(), values(), items()
  kGenerator,  // what lazy filters return: can be walked once, has no length
  kNamespace,
  kMacro,
  kLoop,
  kFunction,  // a global function or a method bound to its object
  kCycler,
  kJoiner,
};

// Bytes of live objects; an object takes its share on creation and returns it on destruction.
class JinjaCharge {
 public:
  JinjaCharge() = default;
  JinjaCharge(int64_t* live, int64_t bytes) : live_(live), bytes_(bytes) {
    if (live_ != nullptr) *live_ += bytes_;
  }
  JinjaCharge(JinjaCharge&& other) noexcept : live_(std::exchange(other.live_, nullptr)), bytes_(other.bytes_) {}
  JinjaCharge& operator=(JinjaCharge&& other) noexcept {
    std::swap(live_, other.live_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~JinjaCharge() {
    if (live_ != nullptr) *live_ -= bytes_;
  }

 private:
  int64_t* live_ = nullptr;
  int64_t bytes_ = 0;
};

struct JinjaObject {
  virtual ~JinjaObject() = default;
  JinjaCharge charge;
  int depth = 0;  // longest chain of counted objects below this one; bounded, so that recursion over values is
};

struct JinjaString final : JinjaObject {
  std::string text;
  int64_t length = 0;   // characters
  bool markup = false;  // marked safe: joining it with plain text escapes that text (markupsafe.Markup)
  bool ascii() const { return length == static_cast<int64_t>(text.size()); }
};

struct JinjaUndefined final : JinjaObject {
  std::string message;  // the error that using the value gives
};

struct JinjaList final : JinjaObject {
  std::vector<JinjaValue> items;
  bool is_group = false;  // groupby's tuples have the attributes grouper and list
};

struct JinjaDict final : JinjaObject {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  std::unordered_map<std::string_view, size_t> index;  // string keys, filled for large dicts only
};

struct JinjaRange final : JinjaObject {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};

struct JinjaDictView final : JinjaObject {
  enum class Kind { kKeys, kValues, kItems } kind = Kind::kKeys;
  std::shared_ptr<const JinjaDict> dict;
};

struct JinjaGenerator final : JinjaObject {
  std::shared_ptr<const JinjaList> source;
  size_t position = 0;
};

// The `loop` of a running for statement. Items are taken from `source` one at a time, since a loop's condition may
// depend on what the body does; `ready` holds those that passed it, including looked-ahead ones.
struct JinjaLoop final : JinjaObject {
  const JinjaStmt* statement = nullptr;
  JinjaScope* scope = nullptr;  // where the statement stands
  std::shared_ptr<const JinjaList> source;
  size_t next_source = 0;
  std::shared_ptr<JinjaList> ready;  // only for loops with a condition; otherwise `source` itself is ready
  int64_t index0 = -1;
  int depth0 = 0;
  bool running = false;
  size_t changed_slot = 0;  // 1 + index into the runtime's list of last changed() arguments; 0: none yet
};

// Arena objects.
struct JinjaNamespace {
  std::vector<std::pair<std::string, JinjaValue>> attributes;
};
struct JinjaMacro {
  const JinjaMacroDef* def = nullptr;
  JinjaScope* scope = nullptr;  // where it was defined
};
struct JinjaCycler {
  std::vector<JinjaValue> items;
  size_t position = 0;
};
struct JinjaJoiner {
  std::string separator;
  bool used = false;
};

struct JinjaFunction;

class JinjaValue {
 public:
  JinjaValue() = default;  // kMissing
  static JinjaValue None() { return JinjaValue(JinjaType::kNone); }
  static JinjaValue Bool(bool value);
  static JinjaValue Int(int64_t value);
  static JinjaValue Float(double value);
  // An integer above the 64-bit range of kInt: a float that prints its exact digits.
  static JinjaValue BigInteger(uint64_t value);
  // Objects outside any runtime's account (literals of a parsed template).
  static JinjaValue UnmeteredString(std::string text);
  static JinjaValue Object(JinjaType type, std::shared_ptr<JinjaObject> object);
  static JinjaValue Arena(JinjaType type, void* pointer);

  JinjaType type() const { return type_; }
  bool is(JinjaType type) const { return type_ == type; }
  bool missing() const { return type_ == JinjaType::kMissing; }
  bool undefined() const { return type_ == JinjaType::kUndefined; }
  bool none() const { return type_ == JinjaType::kNone; }
  bool is_string() const { return type_ == JinjaType::kString; }
  bool is_markup() const { return type_ == JinjaType::kString && string().markup; }
  bool is_dict() const { return type_ == JinjaType::kDict; }
  // bool counts as an integer, as in Python.
  bool is_integer() const { return type_ == JinjaType::kInt || type_ == JinjaType::kBool; }
  bool is_number() const { return is_integer() || type_ == JinjaType::kFloat; }
  bool is_sequence() const { return type_ == JinjaType::kList || type_ == JinjaType::kTuple; }

  bool bool_value() const { return scalar_.b; }
  int64_t int_value() const { return type_ == JinjaType::kBool ? (scalar_.b ? 1 : 0) : scalar_.i; }
  double float_value() const { return type_ == JinjaType::kFloat ? scalar_.d : static_cast<double>(int_value()); }
  const std::string& text() const { return as<JinjaString>().text; }
  const JinjaString& string() const { return as<JinjaString>(); }
  const std::vector<JinjaValue>& items() const { return as<JinjaList>().items; }
  const JinjaDict& dict() const { return as<JinjaDict>(); }
  const std::string& undefined_message() const { return as<JinjaUndefined>().message; }

  template <typename T>
  const T& as() const {
    return static_cast<const T&>(*object_);
  }
  template <typename T>
  T& mutable_as() const {
    return static_cast<T&>(*object_);
  }
  template <typename T>
  std::shared_ptr<const T> share() const {
    return std::static_pointer_cast<const T>(object_);
  }
  template <typename T>
  T* arena() const {
    return static_cast<T*>(scalar_.p);
  }

  bool is_big_integer() const { return type_ == JinjaType::kFloat && object_ != nullptr; }
  int depth() const { return object_ ? object_->depth : 0; }
  // Python's `is`: the same object, or equal singletons and small scalars.
  bool SameAs(const JinjaValue& other) const;

 private:
  explicit JinjaValue(JinjaType type) : type_(type) { scalar_.i = 0; }

  JinjaType type_ = JinjaType::kMissing;
  union {
    bool b;
    int64_t i;
    double d;
    void* p;
  } scalar_ = {.i = 0};
  std::shared_ptr<JinjaObject> object_;  // shared: values are copied freely and objects are immutable
};

struct JinjaFunction final : JinjaObject {
  const JinjaBuiltin* builtin = nullptr;
  JinjaValue self;  // the object of a method, missing for a global function
};

// type(value).__name__.
std::string_view TypeName(const JinjaValue& value);
bool Truthy(const JinjaValue& value);

}  // namespace bellhop::text
