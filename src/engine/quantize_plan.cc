#include "engine/quantize_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "text/pretokenizer_regex.h"
#include "text/tokenizer.h"

namespace bellhop::engine {
namespace {

using quant::EncoderKind;
using quant::FormatTraits;
using quant::Traits;
using quant::WeightFormat;

// Backtracking steps of one pattern on one tensor name (at most 64 bytes): far beyond any sensible pattern.
constexpr uint32_t kMaxRegexSteps = 1u << 20;

bool IsEncodable(const FormatTraits& traits) { return traits.weights && traits.encoder != EncoderKind::kNone; }

bool IsPlain(WeightFormat format) { return Traits(format).block_elems == 1; }

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// "blk.<n>.ffn_{gate,up,down,gate_up}_exps.weight", or one tensor per expert: "blk.<n>.ffn_{gate,up,down}.<e>.weight".
bool IsExpertName(std::string_view name) {
  if (EndsWith(name, "_exps.weight")) return true;
  constexpr std::string_view kEnd = ".weight";
  name.remove_suffix(kEnd.size());
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == name.size() || digits == 0) return false;
  const std::string_view stem = name.substr(0, digits);
  return EndsWith(stem, ".ffn_gate.") || EndsWith(stem, ".ffn_up.") || EndsWith(stem, ".ffn_down.");
}

// Matrices by shape that are read element by element or decide routes: small, and sensitive to rounding.
constexpr std::array<std::string_view, 9> kKeptParts = {"_norm",          "norm.",         "ffn_gate_inp",
                                                        "exp_probs_b",    "attn_sinks",    "ssm_conv1d",
                                                        "shortconv.conv", "position_embd", "token_types"};

Result<WeightFormat> ParseType(std::string_view name, std::string_view option) {
  const std::optional<WeightFormat> format = quant::FormatFromName(name);
  if (format && IsEncodable(Traits(*format))) return *format;
  if (format) {
    return Unsupported("{} '{}': there is no {} encoder; choose one of {}", option, name, Traits(*format).name,
                       QuantizableFormats());
  }
  if (name.size() > 2 && name[name.size() - 2] == '_' && quant::FormatFromName(name.substr(0, name.size() - 2))) {
    return InvalidArgument(
        "{} '{}': a mixture of formats, not a format; use '{}' and choose others for single matrices by pattern "
        "(--tensor-type)",
        option, name, name.substr(0, name.size() - 2));
  }
  return InvalidArgument("{} '{}': no such format; choose one of {}", option, name, QuantizableFormats());
}

struct PatternRule {
  std::string pattern;
  text::Regex regex;
  WeightFormat format;
  bool matched = false;       // a matrix
  bool matched_kept = false;  // a tensor that is never re-encoded
};

Result<std::vector<PatternRule>> CompileRules(const QuantizeOptions& options) {
  std::vector<PatternRule> rules;
  for (const auto& [pattern, type] : options.tensor_types) {
    BELLHOP_TRY_ASSIGN(const WeightFormat format, ParseType(type, "--tensor-type"));
    auto regex = text::Regex::Compile(pattern);
    if (!regex.ok()) return regex.status().WithContext(fmt::format("--tensor-type: pattern '{}'", pattern));
    rules.push_back({pattern, std::move(regex).value(), format});
  }
  return rules;
}

// The first rule that matches, null: none.
Result<PatternRule*> FindRule(std::vector<PatternRule>& rules, const std::string& name, text::RegexScratch* scratch) {
  for (PatternRule& rule : rules) {
    const text::RegexMatch match = rule.regex.Find(text::SanitizeUtf8(name), 0, kMaxRegexSteps, scratch);
    if (match.outcome == text::RegexOutcome::kLimit) {
      return InvalidArgument("--tensor-type: pattern '{}' takes too many steps on tensor '{}'; simplify it",
                             rule.pattern, name);
    }
    if (match.outcome == text::RegexOutcome::kMatch) return &rule;
  }
  return static_cast<PatternRule*>(nullptr);
}

Status CheckRulesMatched(const std::vector<PatternRule>& rules) {
  for (const PatternRule& rule : rules) {
    if (rule.matched) continue;
    if (rule.matched_kept) {
      return InvalidArgument(
          "--tensor-type: pattern '{}' matches only tensors that keep their format (norms, biases, routers, 1-D "
          "tensors)",
          rule.pattern);
    }
    return InvalidArgument(
        "--tensor-type: pattern '{}' decides no tensor: it matches none, or an earlier pattern took them; `bellhop "
        "inspect` lists the names",
        rule.pattern);
  }
  return Status();
}

Status CheckRequantize(const manifest::Tensor& tensor, WeightFormat to, bool allowed) {
  if (allowed || to == tensor.format || IsPlain(tensor.format) || to == WeightFormat::kF32) return Status();
  const std::string_view from_name = Traits(tensor.format).name;
  return Unsupported(
      "tensor '{}' is {} already, and encoding it again as {} would lose accuracy twice; start from an F32, F16 or "
      "BF16 "
      "file, keep such tensors as they are (--tensor-type '{}={}'), or pass --allow-requantize",
      tensor.name, from_name, Traits(to).name, tensor.name, from_name);
}

}  // namespace

std::string QuantizableFormats() {
  std::string names;
  for (const FormatTraits& traits : quant::AllFormats()) {
    if (IsEncodable(traits)) names += (names.empty() ? "" : ", ") + std::string(traits.name);
  }
  return names;
}

TensorRole RoleOf(const manifest::Tensor& tensor) {
  const std::string_view name = tensor.name;
  if (tensor.rows() == 1 || !Traits(tensor.format).weights || !EndsWith(name, ".weight")) return TensorRole::kKept;
  for (const std::string_view part : kKeptParts) {
    if (Contains(name, part)) return TensorRole::kKept;
  }
  if (name == "output.weight" || name == "token_embd.weight") return TensorRole::kOutput;
  return IsExpertName(name) ? TensorRole::kExpert : TensorRole::kDense;
}

WeightFormat FormatForRow(WeightFormat wanted, uint64_t cols, WeightFormat source) {
  const auto fits = [cols](WeightFormat format) { return cols % Traits(format).block_elems == 0; };
  if (fits(wanted)) return wanted;
  WeightFormat next = WeightFormat::kIQ4NL;
  if (wanted == WeightFormat::kQ4K) next = WeightFormat::kQ5_0;
  if (wanted == WeightFormat::kQ5K) next = WeightFormat::kQ5_1;
  if (wanted == WeightFormat::kQ6K) next = WeightFormat::kQ8_0;
  if (fits(next)) return next;
  return source == WeightFormat::kBF16 ? source : WeightFormat::kF16;
}

Result<QuantizePlan> PlanQuantize(const formats::GgufModel& model, const QuantizeOptions& options) {
  QuantizePlan plan;
  BELLHOP_TRY_ASSIGN(plan.main_format, ParseType(options.type, "--type"));
  WeightFormat dense = plan.main_format;
  if (!options.dense_type.empty()) {
    BELLHOP_TRY_ASSIGN(dense, ParseType(options.dense_type, "--dense-type"));
  }
  WeightFormat output = dense;
  if (!options.output_type.empty()) {
    BELLHOP_TRY_ASSIGN(output, ParseType(options.output_type, "--output-type"));
  }
  BELLHOP_TRY_ASSIGN(std::vector<PatternRule> rules, CompileRules(options));
  BELLHOP_TRY_ASSIGN(text::RegexScratch scratch, text::RegexScratch::Create());

  for (const manifest::Tensor& tensor : model.tensors()) {
    const TensorRole role = RoleOf(tensor);
    BELLHOP_TRY_ASSIGN(PatternRule * rule, FindRule(rules, tensor.name, &scratch));
    if (role == TensorRole::kKept) {
      if (rule != nullptr) rule->matched_kept = true;
      plan.tensors.push_back({&tensor, tensor.format});
      continue;
    }
    WeightFormat wanted = role == TensorRole::kExpert ? plan.main_format : role == TensorRole::kOutput ? output : dense;
    if (rule != nullptr) {
      rule->matched = true;
      wanted = rule->format;
    }
    const WeightFormat format = FormatForRow(wanted, tensor.dims[0], tensor.format);
    BELLHOP_TRY(CheckRequantize(tensor, format, options.allow_requantize).WithContext(model.files()[tensor.file].name));
    if (format != wanted) {
      plan.notes.push_back(fmt::format("tensor '{}': rows of {} are not whole {} blocks of {}; written as {}",
                                       tensor.name, tensor.dims[0], Traits(wanted).name, Traits(wanted).block_elems,
                                       Traits(format).name));
    }
    plan.tensors.push_back({&tensor, format});
  }
  BELLHOP_TRY(CheckRulesMatched(rules));
  return plan;
}

int32_t FileTypeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return 0;
    case WeightFormat::kF16: return 1;
    case WeightFormat::kQ4_0: return 2;
    case WeightFormat::kQ4_1: return 3;
    case WeightFormat::kQ8_0: return 7;
    case WeightFormat::kQ5_0: return 8;
    case WeightFormat::kQ5_1: return 9;
    case WeightFormat::kQ2K: return 10;
    case WeightFormat::kQ3K: return 11;  // the K values that name one format alone ("small")
    case WeightFormat::kQ4K: return 14;
    case WeightFormat::kQ5K: return 16;
    case WeightFormat::kQ6K: return 18;
    case WeightFormat::kIQ4NL: return 25;
    case WeightFormat::kIQ4XS: return 30;
    case WeightFormat::kBF16: return 32;
    case WeightFormat::kTQ1_0: return 36;
    case WeightFormat::kTQ2_0: return 37;
    case WeightFormat::kMXFP4: return 38;
    default: return -1;
  }
}

}  // namespace bellhop::engine
