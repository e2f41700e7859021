// tojson: Python's json.dumps with the options that transformers gives the filter.
#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

class JsonWriter {
 public:
  JsonWriter(JinjaRuntime* rt, bool ensure_ascii, bool sort_keys) : rt_(*rt), ascii_(ensure_ascii), sort_(sort_keys) {}

  void SetIndent(std::string indent) {
    indent_ = std::move(indent);
    pretty_ = true;
    item_separator_ = ",";
  }
  void SetSeparators(std::string item, std::string key) {
    item_separator_ = std::move(item);
    key_separator_ = std::move(key);
  }

  Status Write(const JinjaValue& value) {
    BELLHOP_TRY(rt_.Step());
    switch (value.type()) {
      case JinjaType::kNone: return Put("null");
      case JinjaType::kBool: return Put(value.bool_value() ? "true" : "false");
      case JinjaType::kInt: return Put(fmt::format("{}", value.int_value()));
      case JinjaType::kFloat: return Put(value.is_big_integer() ? value.text() : FloatText(value.float_value()));
      case JinjaType::kString: return WriteString(value.text());
      case JinjaType::kList:
      case JinjaType::kTuple: return WriteList(value.items());
      case JinjaType::kDict: return WriteDict(value.dict());
      default: return InvalidArgument("Object of type {} is not JSON serializable", TypeName(value));
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  Status Put(std::string_view text) {
    if (static_cast<int64_t>(out_.size() + text.size()) > rt_.limits().max_output_bytes) {
      return InvalidArgument("a JSON text exceeds the limit of {} bytes", rt_.limits().max_output_bytes);
    }
    out_ += text;
    return rt_.Step(static_cast<int64_t>(text.size()) / kBytesPerStep);
  }

  static std::string FloatText(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(value);
  }

  Status NewLine() {
    if (!pretty_) return Status();
    BELLHOP_TRY(Put("\n"));
    for (int i = 0; i < level_; ++i) BELLHOP_TRY(Put(indent_));
    return Status();
  }

  void PutUnicodeEscape(std::string* out, uint32_t code) const {
    if (code >= 0x10000) {
      code -= 0x10000;
      *out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
    } else {
      *out += fmt::format("\\u{:04x}", code);
    }
  }

  Status WriteString(std::string_view text) {
    BELLHOP_TRY(rt_.CheckBytes(static_cast<int64_t>(text.size())));
    std::string quoted = "\"";
    for (size_t i = 0; i < text.size();) {
      const JinjaChar c = CharAt(text, i);
      const std::string_view bytes = text.substr(i, c.size);
      i += c.size;
      switch (c.code) {
        case '"': quoted += "\\\""; break;
        case '\\': quoted += "\\\\"; break;
        case '\n': quoted += "\\n"; break;
        case '\r': quoted += "\\r"; break;
        case '\t': quoted += "\\t"; break;
        case '\f': quoted += "\\f"; break;
        case '\b': quoted += "\\b"; break;
        default:
          if (c.code < 0x20 || (ascii_ && c.code != kInvalidChar && c.code > 0x7E)) {
            PutUnicodeEscape(&quoted, c.code);
          } else {
            quoted += bytes;
          }
      }
    }
    quoted += '"';
    return Put(quoted);
  }

  Status WriteList(const std::vector<JinjaValue>& items) {
    if (items.empty()) return Put("[]");
    BELLHOP_TRY(Put("["));
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) BELLHOP_TRY(Put(item_separator_));
      BELLHOP_TRY(NewLine());
      BELLHOP_TRY(Write(items[i]));
    }
    --level_;
    BELLHOP_TRY(NewLine());
    return Put("]");
  }

  Result<std::string> KeyText(const JinjaValue& key) {
    switch (key.type()) {
      case JinjaType::kString: return key.text();
      case JinjaType::kNone: return std::string("null");
      case JinjaType::kBool: return std::string(key.bool_value() ? "true" : "false");
      case JinjaType::kInt: return fmt::format("{}", key.int_value());
      case JinjaType::kFloat: return FloatText(key.float_value());
      default: return InvalidArgument("keys must be str, int, float, bool or None, not {}", TypeName(key));
    }
  }

  // Positions of the entries in output order. Python compares the keys themselves, so they must be of one kind.
  Result<std::vector<size_t>> KeyOrder(const JinjaDict& dict) {
    std::vector<size_t> order;
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      BELLHOP_TRY(rt_.Step());
      order.push_back(i);
      for (size_t k = i; sort_ && k > 0; --k) {
        BELLHOP_TRY_ASSIGN(const bool less, JinjaOrder(rt_, JinjaCompareOp::kLt, dict.entries[order[k]].first,
                                                       dict.entries[order[k - 1]].first));
        if (!less) break;
        std::swap(order[k], order[k - 1]);
      }
    }
    return order;
  }

  Status WriteDict(const JinjaDict& dict) {
    if (dict.entries.empty()) return Put("{}");
    BELLHOP_TRY_ASSIGN(const std::vector<size_t> order, KeyOrder(dict));
    BELLHOP_TRY(Put("{"));
    ++level_;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [key, value] = dict.entries[order[i]];
      if (i > 0) BELLHOP_TRY(Put(item_separator_));
      BELLHOP_TRY(NewLine());
      BELLHOP_TRY_ASSIGN(const std::string name, KeyText(key));
      BELLHOP_TRY(WriteString(name));
      BELLHOP_TRY(Put(key_separator_));
      BELLHOP_TRY(Write(value));
    }
    --level_;
    BELLHOP_TRY(NewLine());
    return Put("}");
  }

  JinjaRuntime& rt_;
  bool ascii_;
  bool sort_;
  bool pretty_ = false;
  int level_ = 0;
  std::string indent_;
  std::string item_separator_ = ", ";
  std::string key_separator_ = ": ";
  std::string out_;
};

}  // namespace

Result<JinjaValue> FilterToJson(JinjaRuntime& rt, const JinjaValue& self, JinjaArgs& args) {
  const JinjaValue& indent = args.positional[1];
  const JinjaValue& separators = args.positional[2];
  JsonWriter writer(&rt, Truthy(args.positional[0]), Truthy(args.positional[3]));
  if (indent.is_string()) {
    writer.SetIndent(indent.text());
  } else if (!indent.missing() && !indent.none()) {
    BELLHOP_TRY_ASSIGN(const int64_t width, JinjaInteger(indent, "tojson"));
    BELLHOP_TRY(rt.CheckBytes(std::max<int64_t>(width, 0)));
    writer.SetIndent(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  if (!separators.missing() && !separators.none()) {
    const bool pair = separators.is_sequence() && separators.items().size() == 2 && separators.items()[0].is_string() &&
                      separators.items()[1].is_string();
    if (!pair) return InvalidArgument("tojson: separators must be a pair of strings");
    writer.SetSeparators(separators.items()[0].text(), separators.items()[1].text());
  }
  BELLHOP_TRY(writer.Write(self));
  return rt.String(writer.Take());
}

}  // namespace bellhop::text
