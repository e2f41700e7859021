// The names of "tokenizer.ggml.pre" and the regexes behind them. Classes are those of the original tokenizers (general
// categories), not the approximations that engines without Unicode tables use. Every regex is linear on any text; keep
// it so (pretokenizer_test.cc runs each on a megabyte of the worst characters).
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pretokenizer.h"

namespace bellhop::text {
namespace {

constexpr const char* kLlamaBpe[] = {
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

constexpr const char* kQwen2[] = {
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

constexpr const char* kQwen35[] = {
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

constexpr const char* kGpt4o[] = {
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

constexpr const char* kTekken[] = {
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

// A whitespace character that no alternative takes is a gap, hence a piece of its own.
constexpr const char* kGpt2Regex = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";
constexpr const char* kGpt2[] = {kGpt2Regex};
constexpr const char* kRefact[] = {"\\p{N}", kGpt2Regex};
constexpr const char* kDefault[] = {"[\\p{P}\\$\\+<=>\\^~\\|]+", kGpt2Regex, "\\p{N}+", "[0-9][0-9][0-9]"};

constexpr const char* kDeepseekV3[] = {
    "\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

// The second is cased letters. Six of them circulate in a normalised form that is another character (U+1F7D, 1FBE,
// 1FD3, 1FDB, 2126, 212A); these are the intended ones. The last: digits one by one, as the model was trained. The
// lookbehind in `\s+$` changes no match (the leftmost one starts where whitespace starts) and keeps a long run that is
// not at the end from costing its square.
constexpr const char* kDeepseekLlm[] = {
    "[\\r\\n]",
    "\\s?["
    "\\x{0041}-\\x{005A}\\x{0061}-\\x{007A}\\x{00B5}\\x{00C0}-\\x{00D6}\\x{00D8}-\\x{00F6}\\x{00F8}-\\x{01BA}"
    "\\x{01BC}-\\x{01BF}\\x{01C4}-\\x{0293}\\x{0295}-\\x{02AF}\\x{0370}-\\x{0373}\\x{0376}\\x{0377}"
    "\\x{037B}-\\x{037D}\\x{037F}\\x{0386}\\x{0388}-\\x{038A}\\x{038C}\\x{038E}-\\x{03A1}\\x{03A3}-\\x{03F5}"
    "\\x{03F7}-\\x{0481}\\x{048A}-\\x{052F}\\x{0531}-\\x{0556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}"
    "\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}"
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
    "]+",
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
    "(?<!\\s)\\s+$",
    "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+",
    "\\p{N}"};

struct NamedPatterns {
  std::string_view name;
  std::span<const char* const> patterns;
  bool ignore_merges = false;
  bool adds_bos = false;
};

// In alphabetical order.
constexpr NamedPatterns kPreTokenizers[] = {
    {"a.x-4.0", kGpt2},
    {"chatglm-bpe", kLlamaBpe},
    {"codeshell", kRefact},
    {"command-r", kRefact},
    {"dbrx", kLlamaBpe},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-r1-qwen", kQwen2},
    {"deepseek-v3", kDeepseekV3},
    {"default", kDefault},
    {"exaone", kRefact},
    {"exaone4", kGpt2},
    {"falcon3", kLlamaBpe, true, true},
    {"gigachat", kGpt2},
    {"glm4", kLlamaBpe},
    {"gpt-2", kGpt2},
    {"gpt-4o", kGpt4o},
    {"granite-docling", kGpt2},
    {"grok-2", kQwen2},
    {"hunyuan", kQwen2},
    {"hunyuan-dense", kDeepseekV3},
    {"jais", kGpt2},
    {"kanana2", kGpt4o},
    {"llama-bpe", kLlamaBpe, true, true},
    {"llama-v3", kLlamaBpe, true, true},
    {"llama3", kLlamaBpe, true, true},
    {"llama4", kGpt4o},
    {"megrez", kQwen2},
    {"mellum", kGpt2},
    {"minerva-7b", kRefact},
    {"modern-bert", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"phi-2", kGpt2},
    {"pixtral", kLlamaBpe, true, true},
    {"qwen2", kQwen2},
    {"qwen35", kQwen35},
    {"refact", kRefact},
    {"smaug-bpe", kLlamaBpe},
    {"smollm", kRefact},
    {"stablelm2", kQwen2},
    {"starcoder", kRefact},
    {"tekken", kTekken, true, true},
    {"trillion", kGpt2},
};

}  // namespace

Result<PreTokenizerSpec> FindPreTokenizer(std::string_view name) {
  const std::string_view wanted = name.empty() ? std::string_view("default") : name;
  for (const NamedPatterns& entry : kPreTokenizers) {
    if (entry.name != wanted) continue;
    PreTokenizerSpec spec;
    spec.patterns.assign(entry.patterns.begin(), entry.patterns.end());
    spec.ignore_merges = entry.ignore_merges;
    spec.adds_bos = entry.adds_bos;
    return spec;
  }
  std::string known;
  for (const NamedPatterns& entry : kPreTokenizers) known.append(known.empty() ? "" : ", ").append(entry.name);
  return Unsupported("tokenizer.ggml.pre is \"{}\", which is not supported; supported are {}", name, known);
}

std::vector<std::string> PreTokenizerNames() {
  std::vector<std::string> names;
  for (const NamedPatterns& entry : kPreTokenizers) names.emplace_back(entry.name);
  return names;
}

}  // namespace bellhop::text
