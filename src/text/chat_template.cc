#include "text/chat_template.h"

#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace bellhop::text {

struct ChatTemplate::Impl {
  std::string name;
  std::unique_ptr<JinjaTemplate> parsed;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string name, std::string_view source) {
  Result<std::unique_ptr<JinjaTemplate>> parsed = JinjaParse(source);
  if (!parsed.ok()) return InvalidArgument("{}:{}", name, parsed.status().message());
  auto impl = std::make_unique<Impl>();
  impl->name = std::move(name);
  impl->parsed = std::move(parsed).value();
  return ChatTemplate(std::move(impl));
}

Result<std::string> ChatTemplate::Render(const nlohmann::ordered_json& context, int64_t now_unix_seconds,
                                         const TemplateLimits& limits) const {
  JinjaInterpreter interpreter(*impl_->parsed, limits, now_unix_seconds);
  Result<std::string> text = interpreter.Render(context);
  if (text.ok()) return text;
  return Status(text.status().code(),
                fmt::format("{}:{}: {}", impl_->name, interpreter.line(), text.status().message()));
}

}  // namespace bellhop::text
