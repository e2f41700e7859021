#include "text/jinja_runtime.h"

#include <algorithm>
#include <limits>

#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

// Book-keeping beside the payload: control block, object header, allocator rounding.
constexpr int64_t kObjectBytes = 64;
constexpr size_t kIndexedDictSize = 16;

int64_t ListBytes(const std::vector<JinjaValue>& items) {
  return kObjectBytes + static_cast<int64_t>(items.capacity() * sizeof(JinjaValue));
}

void FillIndex(JinjaDict* dict) {
  if (dict->entries.size() <= kIndexedDictSize) return;
  for (size_t i = 0; i < dict->entries.size(); ++i) {
    if (dict->entries[i].first.is_string()) dict->index.emplace(dict->entries[i].first.text(), i);
  }
}

int ChildDepth(const std::vector<JinjaValue>& items) {
  int depth = 0;
  for (const JinjaValue& item : items) depth = std::max(depth, item.depth());
  return depth;
}

// Whether Python could use the value as a dict key.
bool Hashable(const JinjaValue& value) {
  switch (value.type()) {
    case JinjaType::kList:
    case JinjaType::kDict:
    case JinjaType::kDictView: return false;
    case JinjaType::kTuple:
      return std::all_of(value.items().begin(), value.items().end(), [](const JinjaValue& v) { return Hashable(v); });
    default: return true;
  }
}

}  // namespace

Status JinjaRuntime::BudgetError() const {
  if (!deferred_.ok()) return deferred_;
  if (live_ > limits_.max_live_bytes) {
    return InvalidArgument("the template uses more than {} bytes of memory", limits_.max_live_bytes);
  }
  return InvalidArgument("the template runs for more than {} steps", limits_.max_steps);
}

Status JinjaRuntime::CheckBytes(int64_t bytes) {
  if (bytes > limits_.max_output_bytes || bytes < 0) {
    return InvalidArgument("a value of {} bytes exceeds the limit of {} bytes", bytes, limits_.max_output_bytes);
  }
  if (bytes > limits_.max_live_bytes - live_) {
    return InvalidArgument("the template uses more than {} bytes of memory", limits_.max_live_bytes);
  }
  return Step(bytes / kBytesPerStep);
}

int JinjaRuntime::ContainerDepth(int below) {
  if (below >= kMaxValueDepth && deferred_.ok()) {
    deferred_ = InvalidArgument("values are nested more than {} levels deep", kMaxValueDepth);
  }
  return below + 1;
}

JinjaValue JinjaRuntime::String(std::string text) {
  auto object = std::make_shared<JinjaString>();
  object->length = CountChars(text);
  object->text = std::move(text);
  object->charge = JinjaCharge(&live_, kObjectBytes + static_cast<int64_t>(object->text.capacity()));
  return JinjaValue::Object(JinjaType::kString, std::move(object));
}

JinjaValue JinjaRuntime::Markup(std::string text) {
  JinjaValue value = String(std::move(text));
  value.mutable_as<JinjaString>().markup = true;
  return value;
}

static std::shared_ptr<JinjaList> MakeList(std::vector<JinjaValue> items, int64_t* live, int depth) {
  auto object = std::make_shared<JinjaList>();
  object->depth = depth;
  object->charge = JinjaCharge(live, ListBytes(items));
  object->items = std::move(items);
  return object;
}

JinjaValue JinjaRuntime::List(std::vector<JinjaValue> items) {
  const int depth = ContainerDepth(ChildDepth(items));
  return JinjaValue::Object(JinjaType::kList, MakeList(std::move(items), &live_, depth));
}

JinjaValue JinjaRuntime::Tuple(std::vector<JinjaValue> items) {
  const int depth = ContainerDepth(ChildDepth(items));
  return JinjaValue::Object(JinjaType::kTuple, MakeList(std::move(items), &live_, depth));
}

JinjaValue JinjaRuntime::Generator(std::vector<JinjaValue> items) {
  auto object = std::make_shared<JinjaGenerator>();
  object->depth = ContainerDepth(ChildDepth(items));
  object->source = MakeList(std::move(items), &live_, object->depth);
  object->charge = JinjaCharge(&live_, kObjectBytes);
  return JinjaValue::Object(JinjaType::kGenerator, std::move(object));
}

JinjaValue JinjaRuntime::Undefined(std::string message) {
  auto object = std::make_shared<JinjaUndefined>();
  object->charge = JinjaCharge(&live_, kObjectBytes + static_cast<int64_t>(message.capacity()));
  object->message = std::move(message);
  return JinjaValue::Object(JinjaType::kUndefined, std::move(object));
}

JinjaValue JinjaRuntime::Range(int64_t start, int64_t stop, int64_t step, int64_t count) {
  auto object = std::make_shared<JinjaRange>();
  object->start = start;
  object->stop = stop;
  object->step = step;
  object->count = count;
  object->charge = JinjaCharge(&live_, kObjectBytes);
  return JinjaValue::Object(JinjaType::kRange, std::move(object));
}

JinjaValue JinjaRuntime::DictView(JinjaDictView::Kind kind, const JinjaValue& dict) {
  auto object = std::make_shared<JinjaDictView>();
  object->kind = kind;
  object->dict = dict.share<JinjaDict>();
  object->depth = ContainerDepth(dict.depth());
  object->charge = JinjaCharge(&live_, kObjectBytes);
  return JinjaValue::Object(JinjaType::kDictView, std::move(object));
}

JinjaValue JinjaRuntime::Function(const JinjaBuiltin& builtin, JinjaValue self) {
  auto object = std::make_shared<JinjaFunction>();
  object->builtin = &builtin;
  object->depth = ContainerDepth(self.depth());
  object->self = std::move(self);
  object->charge = JinjaCharge(&live_, kObjectBytes);
  return JinjaValue::Object(JinjaType::kFunction, std::move(object));
}

Result<JinjaValue> JinjaRuntime::Dict(std::vector<std::pair<JinjaValue, JinjaValue>> entries) {
  auto object = std::make_shared<JinjaDict>();
  object->entries.reserve(entries.size());
  std::unordered_map<std::string_view, size_t> places;
  int depth = 0;
  for (auto& [key, value] : entries) {
    BELLHOP_TRY(Step());
    depth = std::max({depth, key.depth(), value.depth()});
    size_t place = object->entries.size();
    if (key.is_string()) {
      place = places.emplace(key.text(), place).first->second;
    } else {
      if (!Hashable(key)) return InvalidArgument("unhashable type: '{}'", TypeName(key));
      for (size_t i = 0; i < object->entries.size(); ++i) {
        BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(*this, object->entries[i].first, key));
        if (same) place = i;
        if (same) break;
      }
    }
    if (place == object->entries.size()) {
      object->entries.emplace_back(std::move(key), std::move(value));
    } else {
      object->entries[place].second = std::move(value);
    }
  }
  FillIndex(object.get());
  object->depth = ContainerDepth(depth);
  const auto entry_bytes = static_cast<int64_t>(sizeof(object->entries[0]) + (object->index.empty() ? 0 : 48));
  object->charge = JinjaCharge(&live_, kObjectBytes + static_cast<int64_t>(object->entries.capacity()) * entry_bytes);
  return JinjaValue::Object(JinjaType::kDict, std::move(object));
}

std::shared_ptr<JinjaLoop> JinjaRuntime::Loop() {
  auto loop = std::make_shared<JinjaLoop>();
  loop->charge = JinjaCharge(&live_, 2 * kObjectBytes);
  return loop;
}

Result<JinjaItems> JinjaRuntime::Items(const JinjaValue& value) {
  if (value.is_sequence()) return value.share<JinjaList>();
  std::vector<JinjaValue> items;
  switch (value.type()) {
    case JinjaType::kUndefined: break;
    case JinjaType::kString: {
      const std::string& text = value.text();
      for (size_t i = 0; i < text.size();) {
        BELLHOP_TRY(Step());
        const uint32_t size = CharAt(text, i).size;
        items.push_back(String(text.substr(i, size)));
        i += size;
      }
      break;
    }
    case JinjaType::kDict:
      BELLHOP_TRY(Step(static_cast<int64_t>(value.dict().entries.size())));
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      break;
    case JinjaType::kDictView: {
      const auto& view = value.as<JinjaDictView>();
      for (const auto& [key, item] : view.dict->entries) {
        BELLHOP_TRY(Step());
        switch (view.kind) {
          case JinjaDictView::Kind::kKeys: items.push_back(key); break;
          case JinjaDictView::Kind::kValues: items.push_back(item); break;
          case JinjaDictView::Kind::kItems: items.push_back(Tuple({key, item})); break;
        }
      }
      break;
    }
    case JinjaType::kRange: {
      const auto& range = value.as<JinjaRange>();
      BELLHOP_TRY(Step(range.count));
      for (int64_t i = 0; i < range.count; ++i) items.push_back(JinjaValue::Int(range.start + i * range.step));
      break;
    }
    case JinjaType::kGenerator: {
      auto& generator = value.mutable_as<JinjaGenerator>();
      const size_t position = std::exchange(generator.position, generator.source->items.size());
      if (position == 0) return generator.source;
      const auto& source = generator.source->items;
      items.assign(source.begin() + static_cast<ptrdiff_t>(position), source.end());
      break;
    }
    default: return InvalidArgument("'{}' object is not iterable", TypeName(value));
  }
  const int depth = ContainerDepth(ChildDepth(items));
  return JinjaItems(MakeList(std::move(items), &live_, depth));
}

Result<JinjaItems> JinjaRuntime::FirstItem(const JinjaValue& value) {
  std::vector<JinjaValue> first;
  if (value.is(JinjaType::kGenerator)) {
    auto& generator = value.mutable_as<JinjaGenerator>();
    if (generator.position < generator.source->items.size()) {
      first.push_back(generator.source->items[generator.position++]);
    }
  } else if (value.is_string()) {
    if (!value.text().empty()) first.push_back(String(value.text().substr(0, CharAt(value.text(), 0).size)));
  } else {
    BELLHOP_TRY_ASSIGN(const JinjaItems items, Items(value));
    if (!items->items.empty()) first.push_back(items->items.front());
  }
  const int depth = ContainerDepth(ChildDepth(first));
  return JinjaItems(MakeList(std::move(first), &live_, depth));
}

JinjaNamespace* JinjaRuntime::NewNamespace() {
  ChargeArena(kObjectBytes);
  return &namespaces_.emplace_back();
}

JinjaMacro* JinjaRuntime::NewMacro(const JinjaMacroDef& def, JinjaScope* scope) {
  ChargeArena(kObjectBytes);
  return &macros_.emplace_back(JinjaMacro{&def, scope});
}

JinjaCycler* JinjaRuntime::NewCycler(std::vector<JinjaValue> items) {
  ChargeArena(ListBytes(items));
  return &cyclers_.emplace_back(JinjaCycler{std::move(items), 0});
}

JinjaJoiner* JinjaRuntime::NewJoiner(std::string separator) {
  ChargeArena(kObjectBytes + static_cast<int64_t>(separator.capacity()));
  return &joiners_.emplace_back(JinjaJoiner{std::move(separator), false});
}

std::vector<JinjaValue>& JinjaRuntime::ChangedSlot(size_t* slot) {
  if (*slot == 0) {
    ChargeArena(kObjectBytes);
    changed_.emplace_back();
    *slot = changed_.size();
  }
  return changed_[*slot - 1];
}

Result<JinjaValue> ValueFromJson(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxValueDepth / 2) return InvalidArgument("the context is nested more than {} levels deep", depth - 1);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean: return JinjaValue::Bool(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer: return JinjaValue::Int(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return JinjaValue::BigInteger(number);
      return JinjaValue::Int(static_cast<int64_t>(number));
    }
    case nlohmann::ordered_json::value_t::number_float: return JinjaValue::Float(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return JinjaValue::UnmeteredString(json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      auto list = std::make_shared<JinjaList>();
      list->items.reserve(json.size());
      for (const auto& item : json) {
        BELLHOP_TRY_ASSIGN(JinjaValue value, ValueFromJson(item, depth + 1));
        list->items.push_back(std::move(value));
      }
      list->depth = ChildDepth(list->items) + 1;
      return JinjaValue::Object(JinjaType::kList, std::move(list));
    }
    case nlohmann::ordered_json::value_t::object: {
      auto dict = std::make_shared<JinjaDict>();
      dict->entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        BELLHOP_TRY_ASSIGN(JinjaValue value, ValueFromJson(item, depth + 1));
        dict->depth = std::max(dict->depth, value.depth());
        dict->entries.emplace_back(JinjaValue::UnmeteredString(key), std::move(value));
      }
      ++dict->depth;
      FillIndex(dict.get());
      return JinjaValue::Object(JinjaType::kDict, std::move(dict));
    }
    default: return JinjaValue::None();
  }
}

const JinjaValue* DictFind(const JinjaDict& dict, std::string_view key) {
  if (!dict.index.empty()) {
    const auto it = dict.index.find(key);
    return it == dict.index.end() ? nullptr : &dict.entries[it->second].second;
  }
  for (const auto& [name, value] : dict.entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

Result<const JinjaValue*> DictFind(JinjaRuntime& rt, const JinjaDict& dict, const JinjaValue& key) {
  if (key.is_string()) return DictFind(dict, key.text());
  if (!Hashable(key)) return InvalidArgument("unhashable type: '{}'", TypeName(key));
  for (const auto& [name, value] : dict.entries) {
    BELLHOP_TRY_ASSIGN(const bool same, JinjaEqual(rt, name, key));
    if (same) return &value;
  }
  return static_cast<const JinjaValue*>(nullptr);
}

}  // namespace bellhop::text
