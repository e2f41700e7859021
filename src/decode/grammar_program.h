// The compiled form of a grammar: one pushdown automaton over bytes. Each rule is a graph of states that ends in kEnd;
// a state either consumes a byte, branches, or calls a rule. A class of characters that needs more than one byte is a
// rule of its own, so that characters may be split anywhere between tokens.
//
// A control token stands in a grammar as kTokenMark, its text, kTokenMark. The mark is no byte of UTF-8, and the bytes
// of ordinary tokens with a mark in them are left out of the index, so nothing else spells it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "decode/grammar.h"

namespace bellhop::decode {

constexpr uint8_t kTokenMark = 0xFF;

struct GrammarState {
  enum class Kind : uint32_t {
    kBytes,  // a: byte set; b: next state
    kSplit,  // a, b: next states
    kCall,   // a: start state of a rule; b: next state
    kEnd,    // of the rule
  };
  Kind kind = Kind::kEnd;
  uint32_t a = 0, b = 0;
};

struct ByteSet {
  std::array<uint64_t, 4> words = {};

  bool Has(uint8_t byte) const { return (words[byte / 64] >> (byte % 64) & 1) != 0; }
  void Add(uint8_t low, uint8_t high) {
    for (int byte = low; byte <= high; ++byte) words[static_cast<size_t>(byte / 64)] |= uint64_t{1} << (byte % 64);
  }
  friend auto operator<=>(const ByteSet&, const ByteSet&) = default;
};

struct GrammarProgram {
  std::vector<GrammarState> states;
  std::vector<ByteSet> sets;
  uint32_t start = 0;
  // Bytes that every set treats alike share a class.
  std::array<uint8_t, 256> class_of = {};
  std::vector<uint8_t> class_byte;  // [class]: one of its bytes
};

struct Grammar::Rules {
  GrammarProgram program;
};

// Syntax tree of GBNF, between parser and compiler. Indices are into GrammarSyntax::nodes.
struct CodePointRange {
  uint32_t first = 0, last = 0;
  friend auto operator<=>(const CodePointRange&, const CodePointRange&) = default;
};

constexpr uint32_t kUnlimited = ~uint32_t{0};

struct GrammarNode {
  enum class Kind {
    kLiteral,   // text; empty: the empty sequence
    kClass,     // ranges, sorted and disjoint
    kRule,      // rule
    kSequence,  // children
    kChoice,    // children
    kRepeat,    // children[0], min to max times
  };
  Kind kind = Kind::kLiteral;
  std::string text = {};
  std::vector<CodePointRange> ranges = {};
  std::vector<uint32_t> children = {};
  uint32_t rule = 0;
  uint32_t min = 0, max = 0;
};

struct GrammarPlace {
  int32_t line = 0, column = 0;  // from 1; line 0: nowhere yet
};

struct GrammarRule {
  std::string name;
  GrammarPlace defined, used;
  uint32_t body = 0;
};

struct GrammarSyntax {
  std::vector<GrammarNode> nodes;
  std::vector<GrammarRule> rules;
  uint32_t root = 0;
};

// "grammar:<line>:<column>: <what>".
Status GrammarError(GrammarPlace place, std::string_view what);
// Every rule of the result is defined and has a body.
Result<GrammarSyntax> ParseGbnf(std::string_view gbnf);
Result<GrammarProgram> CompileGrammar(const GrammarSyntax& syntax);

}  // namespace bellhop::decode
