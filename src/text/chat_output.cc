#include "text/chat_output.h"

#include <utility>

#include "text/chat_output_machine.h"

namespace bellhop::text {

ChatFormat DetectChatFormat(std::string_view template_source) {
  const auto has = [&](std::string_view word) { return template_source.find(word) != std::string_view::npos; };
  if (has("<|channel|>")) return ChatFormat::kHarmony;
  if (has("<tool_call>") && has("<function=")) return ChatFormat::kTagged;
  if (has("<tool_call>") || has("<think>")) return ChatFormat::kHermes;
  return ChatFormat::kPlain;
}

size_t TagSuffix(std::string_view text, std::string_view tag) {
  for (size_t length = std::min(text.size(), tag.size() - 1); length > 0; --length) {
    if (text.ends_with(tag.substr(0, length))) return length;
  }
  return 0;
}

size_t WhiteSuffix(std::string_view text) {
  const size_t last = text.find_last_not_of(kWhite);
  return last == std::string_view::npos ? text.size() : text.size() - last - 1;
}

void ChatOutputParser::Machine::Emit(ChatDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!out_->empty() && out_->back().kind == kind && kind != ChatDelta::Kind::kToolBegin &&
      (kind != ChatDelta::Kind::kToolArguments || out_->back().tool == tools_ - 1)) {
    out_->back().text += text;
    return;
  }
  const bool of_tool = kind == ChatDelta::Kind::kToolBegin || kind == ChatDelta::Kind::kToolArguments;
  out_->push_back({kind, of_tool ? tools_ - 1 : -1, std::string(text)});
}

void ChatOutputParser::Machine::BeginTool(std::string_view name) {
  ++tools_;
  Emit(ChatDelta::Kind::kToolBegin, name);
}

void ChatOutputParser::Machine::Push(std::string_view text, std::vector<ChatDelta>* deltas) {
  out_ = deltas;
  buffer_ += text;
  while (Step(false)) {
  }
}

void ChatOutputParser::Machine::Finish(std::vector<ChatDelta>* deltas) {
  out_ = deltas;
  while (Step(true)) {
  }
}

namespace {

class PlainMachine final : public ChatOutputParser::Machine {
 private:
  bool Step(bool) override {
    Emit(ChatDelta::Kind::kContent, buffer_);
    buffer_.clear();
    return false;
  }
};

}  // namespace

ChatOutputParser::ChatOutputParser(const Options& options) {
  switch (options.format) {
    case ChatFormat::kPlain: machine_ = std::make_unique<PlainMachine>(); break;
    case ChatFormat::kHermes:
    case ChatFormat::kTagged: machine_ = MakeTagMachine(options); break;
    case ChatFormat::kHarmony: machine_ = MakeHarmonyMachine(options); break;
  }
}

ChatOutputParser::~ChatOutputParser() = default;
ChatOutputParser::ChatOutputParser(ChatOutputParser&&) noexcept = default;

void ChatOutputParser::Push(std::string_view text, std::vector<ChatDelta>* deltas) { machine_->Push(text, deltas); }
void ChatOutputParser::Finish(std::vector<ChatDelta>* deltas) { machine_->Finish(deltas); }
int32_t ChatOutputParser::tool_calls() const { return machine_->tools(); }

}  // namespace bellhop::text
