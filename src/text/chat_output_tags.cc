// <think> and <tool_call>: Qwen3 and the many models that write calls as Hermes did.
#include <nlohmann/json.hpp>

#include "text/chat_output_machine.h"

namespace bellhop::text {
namespace {

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";
constexpr std::string_view kCall = "<tool_call>", kEndCall = "</tool_call>";

using Json = nlohmann::ordered_json;

size_t SkipWhite(std::string_view text, size_t at) {
  const size_t found = text.find_first_not_of(kWhite, at);
  return found == std::string_view::npos ? text.size() : found;
}

// Outcome of reading one expected piece.
enum class Read : uint8_t { kDone, kUnfinished, kOther };

Read ReadLiteral(std::string_view text, std::string_view literal, size_t* at) {
  *at = SkipWhite(text, *at);
  const std::string_view rest = text.substr(*at);
  if (rest.size() < literal.size()) return literal.starts_with(rest) ? Read::kUnfinished : Read::kOther;
  if (!rest.starts_with(literal)) return Read::kOther;
  *at += literal.size();
  return Read::kDone;
}

Read ReadString(std::string_view text, std::string* value, size_t* at) {
  *at = SkipWhite(text, *at);
  if (*at == text.size()) return Read::kUnfinished;
  if (text[*at] != '"') return Read::kOther;
  size_t end = *at + 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  if (end >= text.size()) return Read::kUnfinished;
  const Json parsed = Json::parse(text.substr(*at, end + 1 - *at), nullptr, false);
  if (!parsed.is_string()) return Read::kOther;
  *value = parsed.get<std::string>();
  *at = end + 1;
  return Read::kDone;
}

// {"name": ..., "arguments": {...}} in any order of keys; arguments may be a string that holds the object.
bool ReadWholeCall(std::string_view text, std::string* name, std::string* arguments) {
  const Json call = Json::parse(text, nullptr, false);
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
  *name = call["name"].get<std::string>();
  const auto found = call.contains("arguments") ? call.find("arguments") : call.find("parameters");
  if (found == call.end()) {
    *arguments = "{}";
  } else if (found->is_string()) {
    *arguments = found->get<std::string>();
  } else {
    *arguments = found->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return !name->empty();
}

std::string_view TrimLineFeeds(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// <function=NAME><parameter=KEY>value</parameter>...</function>. A value that is JSON other than a string is taken as
// such, since the format has no types.
bool ReadTaggedCall(std::string_view text, std::string* name, std::string* arguments) {
  constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=", kEndParameter = "</parameter>";
  const size_t begin = SkipWhite(text, 0);
  if (!text.substr(begin).starts_with(kFunction)) return false;
  const size_t close = text.find('>', begin);
  if (close == std::string_view::npos) return false;
  *name = std::string(text.substr(begin + kFunction.size(), close - begin - kFunction.size()));
  Json values = Json::object();
  for (size_t at = close + 1;;) {
    at = text.find(kParameter, at);
    if (at == std::string_view::npos) break;
    const size_t key_end = text.find('>', at), end = text.find(kEndParameter, at);
    if (key_end == std::string_view::npos || end == std::string_view::npos || key_end > end) return false;
    const std::string key(text.substr(at + kParameter.size(), key_end - at - kParameter.size()));
    const std::string value(TrimLineFeeds(text.substr(key_end + 1, end - key_end - 1)));
    const Json parsed = Json::parse(value, nullptr, false);
    values[key] = parsed.is_discarded() || parsed.is_string() ? Json(value) : parsed;
    at = end + kEndParameter.size();
  }
  *arguments = values.dump(-1, ' ', false, Json::error_handler_t::replace);
  return !name->empty();
}

class TagMachine final : public ChatOutputParser::Machine {
 public:
  explicit TagMachine(const ChatOutputParser::Options& options) : options_(options) {
    if (options.in_reasoning && options.reasoning) state_ = State::kReasoning;
    if (!options.reasoning) {
      state_ = State::kContent;
      at_begin_ = false;
    }
  }

 private:
  enum class State : uint8_t { kStart, kReasoning, kContent, kCallHead, kArguments, kCallTail };

  bool Step(bool last) override {
    switch (state_) {
      case State::kStart: return StepStart(last);
      case State::kReasoning: return StepReasoning(last);
      case State::kContent: return StepContent(last);
      case State::kCallHead: return StepCallHead(last);
      case State::kArguments: return StepArguments(last);
      case State::kCallTail: return StepCallTail(last);
    }
    return false;
  }

  // Reasoning may open the answer, after white space.
  bool StepStart(bool last) {
    const std::string_view text = std::string_view(buffer_).substr(SkipWhite(buffer_, 0));
    if (text.starts_with(kThink)) {
      buffer_.erase(0, buffer_.size() - text.size() + kThink.size());
      state_ = State::kReasoning;
      return true;
    }
    if (kThink.starts_with(text) && !last) return false;
    state_ = State::kContent;
    at_begin_ = false;  // white space that opens an answer without reasoning is the model's
    return true;
  }

  bool StepReasoning(bool last) {
    if (at_begin_) DropWhite();
    const size_t end = buffer_.find(kEndThink);
    if (end != std::string::npos) {
      Give(ChatDelta::Kind::kReasoning, end - WhiteSuffix(std::string_view(buffer_).substr(0, end)));
      buffer_.erase(0, buffer_.find(kEndThink) + kEndThink.size());
      state_ = State::kContent;
      at_begin_ = true;
      return true;
    }
    size_t held = TagSuffix(buffer_, kEndThink);
    held += WhiteSuffix(std::string_view(buffer_).substr(0, buffer_.size() - held));
    Give(ChatDelta::Kind::kReasoning, buffer_.size() - (last ? 0 : held));
    return false;
  }

  bool StepContent(bool last) {
    if (at_begin_ || after_call_) DropWhite();
    if (buffer_.empty()) return false;
    const size_t begin = options_.tools ? buffer_.find(kCall) : std::string::npos;
    if (begin != std::string::npos) {
      Give(ChatDelta::Kind::kContent, begin - WhiteSuffix(std::string_view(buffer_).substr(0, begin)));
      skipped_ = buffer_.substr(0, buffer_.find(kCall));
      buffer_.erase(0, skipped_.size() + kCall.size());
      state_ = State::kCallHead;
      return true;
    }
    size_t held = 0;
    if (options_.tools && !last) {
      held = TagSuffix(buffer_, kCall);
      held += WhiteSuffix(std::string_view(buffer_).substr(0, buffer_.size() - held));
    }
    Give(ChatDelta::Kind::kContent, buffer_.size() - held);
    return false;
  }

  bool StepCallHead(bool last) {
    if (options_.format == ChatFormat::kHermes) {
      CallHead head = ReadCallHead(buffer_);
      if (head.state == CallHead::State::kFound) {
        BeginTool(head.name);
        buffer_.erase(0, head.end);
        arguments_ = JsonObjectEnd();
        state_ = State::kArguments;
        return true;
      }
      if (head.state == CallHead::State::kUnfinished && !last) return false;
    }
    // Not as expected: the whole call, once it is there.
    const size_t end = buffer_.find(kEndCall);
    if (end == std::string::npos && !last) return false;
    const std::string_view body = std::string_view(buffer_).substr(0, end);
    std::string name, arguments;
    const bool tagged = options_.format == ChatFormat::kTagged;
    const bool read = tagged ? ReadTaggedCall(body, &name, &arguments) || ReadWholeCall(body, &name, &arguments)
                             : ReadWholeCall(body, &name, &arguments);
    if (read) {
      BeginTool(name);
      Emit(ChatDelta::Kind::kToolArguments, arguments);
    } else {
      Emit(ChatDelta::Kind::kContent, skipped_);
      Emit(ChatDelta::Kind::kContent, kCall);
      Emit(ChatDelta::Kind::kContent, body);
      if (end != std::string::npos) Emit(ChatDelta::Kind::kContent, kEndCall);
    }
    buffer_.erase(0, end == std::string::npos ? end : end + kEndCall.size());
    after_call_ = read;
    state_ = State::kContent;
    return true;
  }

  bool StepArguments(bool) {
    const size_t taken = arguments_.Take(buffer_);
    Give(ChatDelta::Kind::kToolArguments, taken);
    if (!arguments_.complete()) return false;
    state_ = State::kCallTail;
    return true;
  }

  // What follows the arguments up to the closing tag is the call's own brace, and nothing that a client needs.
  bool StepCallTail(bool last) {
    const size_t end = buffer_.find(kEndCall);
    if (end == std::string::npos) {
      if (last) buffer_.clear();
      return false;
    }
    buffer_.erase(0, end + kEndCall.size());
    after_call_ = true;
    state_ = State::kContent;
    return true;
  }

  void DropWhite() { buffer_.erase(0, SkipWhite(buffer_, 0)); }

  void Give(ChatDelta::Kind kind, size_t bytes) {
    if (bytes == 0) return;
    at_begin_ = after_call_ = false;
    Emit(kind, std::string_view(buffer_).substr(0, bytes));
    buffer_.erase(0, bytes);
  }

  ChatOutputParser::Options options_;
  State state_ = State::kStart;
  bool at_begin_ = true;     // of the part, so that white space is dropped
  bool after_call_ = false;  // nothing but white space since a call
  std::string skipped_;      // white space before the call being read
  JsonObjectEnd arguments_;
};

}  // namespace

CallHead ReadCallHead(std::string_view text) {
  CallHead head;
  size_t at = 0;
  std::string arguments_key;
  const auto failed = [&](Read read) {
    head.state = read == Read::kUnfinished ? CallHead::State::kUnfinished : CallHead::State::kOther;
    return read != Read::kDone;
  };
  if (failed(ReadLiteral(text, "{", &at)) || failed(ReadLiteral(text, "\"name\"", &at)) ||
      failed(ReadLiteral(text, ":", &at)) || failed(ReadString(text, &head.name, &at)) ||
      failed(ReadLiteral(text, ",", &at)) || failed(ReadLiteral(text, "\"arguments\"", &at)) ||
      failed(ReadLiteral(text, ":", &at))) {
    return head;
  }
  at = SkipWhite(text, at);
  if (at == text.size()) {
    head.state = CallHead::State::kUnfinished;
  } else {
    head.state = text[at] == '{' && !head.name.empty() ? CallHead::State::kFound : CallHead::State::kOther;
    head.end = at;
  }
  return head;
}

size_t JsonObjectEnd::Take(std::string_view text) {
  for (size_t i = 0; i < text.size() && !complete_; ++i) {
    const char c = text[i];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ == 0) {
      complete_ = true;
      return i + 1;
    }
  }
  return complete_ ? 0 : text.size();
}

std::unique_ptr<ChatOutputParser::Machine> MakeTagMachine(const ChatOutputParser::Options& options) {
  return std::make_unique<TagMachine>(options);
}

}  // namespace bellhop::text
