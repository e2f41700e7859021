// Syntax tree of a grammar to its automaton, and the checks that need the whole of it.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "decode/grammar_program.h"

namespace bellhop::decode {
namespace {

// 12 bytes each. A string of at most 65536 characters, written as a repetition, takes twice that many.
constexpr size_t kMaxStates = size_t{1} << 20;
// Repetitions of nothing make no states, but take time.
constexpr size_t kMaxWork = 4 * kMaxStates;
constexpr size_t kMaxSets = 4096;

using Kind = GrammarState::Kind;

struct SetHash {
  size_t operator()(const ByteSet& set) const {
    uint64_t hash = 0;
    for (const uint64_t word : set.words) hash = (hash ^ word) * 0x9E3779B97F4A7C15u + (hash >> 29);
    return static_cast<size_t>(hash ^ hash >> 32);
  }
};

// One run of UTF-8 sequences of equal length: byte i from low[i] to high[i].
struct ByteRun {
  size_t length = 0;
  uint8_t low[4] = {}, high[4] = {};
};

void Encode(uint32_t c, size_t length, uint8_t* out) {
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = length; i-- > 1; c >>= 6) out[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  out[0] = static_cast<uint8_t>(kLead[length] | c);
}

// Cuts first..last where the length changes and where a byte would not run over its whole range, and leaves out the
// surrogates.
void AppendRuns(uint32_t first, uint32_t last, std::vector<ByteRun>* runs) {
  constexpr uint32_t kEnds[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF};
  while (first <= last) {
    uint32_t end = last;
    for (const uint32_t limit : kEnds) {
      if (first <= limit && end > limit) end = limit;
    }
    if (first >= 0xD800 && first <= 0xDFFF) {
      first = end + 1;
      continue;
    }
    const size_t length = first < 0x80 ? 1 : first < 0x800 ? 2 : first < 0x10000 ? 3 : 4;
    for (size_t tail = 1; tail < length; ++tail) {
      const uint32_t mask = (uint32_t{1} << (6 * tail)) - 1;
      if ((first & ~mask) == (end & ~mask)) continue;
      if ((first & mask) != 0) {
        end = first | mask;
      } else if ((end & mask) != mask) {
        end = (end & ~mask) - 1;
      }
    }
    ByteRun run{.length = length};
    Encode(first, length, run.low);
    Encode(end, length, run.high);
    runs->push_back(run);
    first = end + 1;
  }
}

class GrammarCompiler {
 public:
  explicit GrammarCompiler(const GrammarSyntax& syntax) : syntax_(syntax) {}

  Result<GrammarProgram> Compile() {
    starts_.resize(syntax_.rules.size());
    // Calls need the start states of rules that come later: each rule begins with a split that is filled in at its
    // turn.
    for (uint32_t& start : starts_) start = AddState({Kind::kSplit, 0, 0});
    for (size_t i = 0; i < starts_.size(); ++i) {
      const uint32_t body = Node(syntax_.rules[i].body, AddState({}));
      if (overflow_) break;
      program_.states[starts_[i]] = {Kind::kSplit, body, body};
    }
    if (!overflow_) BELLHOP_TRY(CheckLeftRecursion());
    if (overflow_ || program_.sets.size() > kMaxSets) {
      return GrammarError(syntax_.rules[syntax_.root].defined,
                          fmt::format("the grammar is too large: it needs more than {} states; use smaller "
                                      "repetition counts",
                                      kMaxStates));
    }
    program_.start = starts_[syntax_.root];
    FindClasses();
    return std::move(program_);
  }

 private:
  uint32_t AddState(GrammarState state) {
    if (program_.states.size() >= kMaxStates) {
      overflow_ = true;
      return 0;
    }
    program_.states.push_back(state);
    return static_cast<uint32_t>(program_.states.size() - 1);
  }

  uint32_t Bytes(const ByteSet& set, uint32_t next) {
    const auto [entry, added] = set_index_.try_emplace(set, static_cast<uint32_t>(program_.sets.size()));
    if (added) program_.sets.push_back(set);
    return AddState({Kind::kBytes, entry->second, next});
  }

  uint32_t Byte(uint8_t byte, uint32_t next) {
    ByteSet set;
    set.Add(byte, byte);
    return Bytes(set, next);
  }

  uint32_t Choice(uint32_t a, uint32_t b) { return AddState({Kind::kSplit, a, b}); }

  // The state from which `index` is matched and then `next` reached.
  uint32_t Node(uint32_t index, uint32_t next) {
    const GrammarNode& node = syntax_.nodes[index];
    if (++work_ > kMaxWork) overflow_ = true;
    if (overflow_) return 0;
    switch (node.kind) {
      case GrammarNode::Kind::kLiteral:
        for (size_t i = node.text.size(); i-- > 0;) next = Byte(static_cast<uint8_t>(node.text[i]), next);
        return next;
      case GrammarNode::Kind::kClass: return Class(node.ranges, next);
      case GrammarNode::Kind::kRule: return AddState({Kind::kCall, starts_[node.rule], next});
      case GrammarNode::Kind::kSequence:
        for (size_t i = node.children.size(); i-- > 0;) next = Node(node.children[i], next);
        return next;
      case GrammarNode::Kind::kChoice: {
        uint32_t choice = Node(node.children.back(), next);
        for (size_t i = node.children.size() - 1; i-- > 0;) choice = Choice(Node(node.children[i], next), choice);
        return choice;
      }
      case GrammarNode::Kind::kRepeat: return Repeat(node, next);
    }
    return next;
  }

  uint32_t Repeat(const GrammarNode& node, uint32_t next) {
    const uint32_t child = node.children[0];
    uint32_t at = next;
    if (node.max == kUnlimited) {
      at = Choice(next, next);
      const uint32_t body = Node(child, at);
      if (!overflow_) program_.states[at].a = body;
    } else {
      for (uint32_t i = node.min; i < node.max && !overflow_; ++i) at = Choice(Node(child, at), next);
    }
    for (uint32_t i = 0; i < node.min && !overflow_; ++i) at = Node(child, at);
    return at;
  }

  uint32_t Class(const std::vector<CodePointRange>& ranges, uint32_t next) {
    if (ranges.back().last < 0x80) {
      ByteSet set;
      for (const CodePointRange& range : ranges) {
        set.Add(static_cast<uint8_t>(range.first), static_cast<uint8_t>(range.last));
      }
      return Bytes(set, next);
    }
    auto entry = classes_.find(ranges);
    if (entry == classes_.end()) entry = classes_.emplace(ranges, ClassRule(ranges)).first;
    return AddState({Kind::kCall, entry->second, next});
  }

  uint32_t ClassRule(const std::vector<CodePointRange>& ranges) {
    std::vector<ByteRun> runs;
    for (const CodePointRange& range : ranges) AppendRuns(range.first, range.last, &runs);
    const uint32_t end = AddState({});
    ByteSet single;
    std::vector<uint32_t> alternatives;
    for (size_t i = 0; i < runs.size() && !overflow_; ++i) {
      const ByteRun& run = runs[i];
      work_ += run.length;
      if (run.length == 1) {
        single.Add(run.low[0], run.high[0]);
        continue;
      }
      uint32_t at = end;
      for (size_t byte = run.length; byte-- > 0;) {
        ByteSet set;
        set.Add(run.low[byte], run.high[byte]);
        at = Bytes(set, at);
      }
      alternatives.push_back(at);
    }
    if (single != ByteSet{}) alternatives.push_back(Bytes(single, end));
    if (alternatives.empty()) alternatives.push_back(Bytes(ByteSet{}, end));  // surrogates alone: matches nothing
    uint32_t start = alternatives.back();
    for (size_t i = 1; i < alternatives.size(); ++i) start = Choice(alternatives[alternatives.size() - 1 - i], start);
    return start;
  }

  // The states that rule `start` reaches without consuming a byte, given the rules known to match nothing; collects
  // the calls among them. True: its end is one of them.
  bool Reach(uint32_t start, const std::vector<uint8_t>& nullable, std::vector<uint32_t>* calls) {
    ++stamp_;
    todo_.assign(1, start);
    bool ends = false;
    while (!todo_.empty()) {
      const uint32_t at = todo_.back();
      todo_.pop_back();
      if (seen_[at] == stamp_) continue;
      seen_[at] = stamp_;
      ++work_;
      const GrammarState& state = program_.states[at];
      if (state.kind == Kind::kEnd) ends = true;
      if (state.kind == Kind::kSplit) {
        todo_.push_back(state.a);
        todo_.push_back(state.b);
      }
      if (state.kind == Kind::kCall) {
        const auto rule = rule_of_start_.find(state.a);
        if (rule == rule_of_start_.end()) continue;  // a class: consumes and calls nothing
        if (calls != nullptr) calls->push_back(rule->second);
        if (nullable[rule->second] != 0) todo_.push_back(state.b);
      }
    }
    return ends;
  }

  Status CheckLeftRecursion() {
    const size_t count = starts_.size();
    seen_.assign(program_.states.size(), 0);
    for (size_t i = 0; i < count; ++i) rule_of_start_[starts_[i]] = static_cast<uint32_t>(i);
    // A rule is looked at again when one that it calls first turns out to match nothing.
    std::vector<uint8_t> nullable(count, 0);
    std::vector<std::vector<uint32_t>> callers(count), calls(count);
    std::vector<uint32_t> pending(count);
    for (size_t i = 0; i < count; ++i) pending[i] = static_cast<uint32_t>(count - 1 - i);
    while (!pending.empty()) {
      const uint32_t rule = pending.back();
      pending.pop_back();
      if (nullable[rule] != 0) continue;
      calls[rule].clear();
      const bool ends = Reach(starts_[rule], nullable, &calls[rule]);
      if (work_ > 4 * kMaxWork) overflow_ = true;
      if (overflow_) return Status();
      if (!ends) {
        for (const uint32_t called : calls[rule]) callers[called].push_back(rule);
        continue;
      }
      nullable[rule] = 1;
      pending.insert(pending.end(), callers[rule].begin(), callers[rule].end());
      callers[rule].clear();
    }
    for (size_t i = 0; i < count; ++i) {
      calls[i].clear();
      Reach(starts_[i], nullable, &calls[i]);
    }
    return FindCycle(calls);
  }

  Status FindCycle(const std::vector<std::vector<uint32_t>>& calls) const {
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> mark(calls.size(), kNew);
    std::vector<std::pair<uint32_t, size_t>> path;  // rule, next of its calls
    for (uint32_t first = 0; first < calls.size(); ++first) {
      if (mark[first] != kNew) continue;
      mark[first] = kOpen;
      path.assign(1, {first, 0});
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next == calls[rule].size()) {
          mark[rule] = kDone;
          path.pop_back();
          continue;
        }
        const uint32_t called = calls[rule][next++];
        if (mark[called] == kOpen) {
          return GrammarError(syntax_.rules[called].defined,
                              fmt::format("rule '{}' is left-recursive: it can begin with itself; put what it repeats "
                                          "first, or use *",
                                          syntax_.rules[called].name));
        }
        if (mark[called] == kNew) {
          mark[called] = kOpen;
          path.emplace_back(called, 0);
        }
      }
    }
    return Status();
  }

  void FindClasses() {
    // Splitting the classes so far by each set in turn.
    std::array<uint32_t, 256> group = {};
    uint32_t groups = 1;
    for (const ByteSet& set : program_.sets) {
      std::map<uint32_t, uint32_t> inside;
      std::array<uint32_t, 256> sizes = {}, hits = {};
      for (size_t byte = 0; byte < 256; ++byte) {
        ++sizes[group[byte]];
        if (set.Has(static_cast<uint8_t>(byte))) ++hits[group[byte]];
      }
      for (size_t byte = 0; byte < 256; ++byte) {
        const uint32_t old = group[byte];
        if (!set.Has(static_cast<uint8_t>(byte)) || hits[old] == sizes[old]) continue;
        const auto [entry, added] = inside.try_emplace(old, groups);
        if (added) ++groups;
        group[byte] = entry->second;
      }
    }
    program_.class_byte.resize(groups);
    for (size_t byte = 0; byte < 256; ++byte) {
      program_.class_of[byte] = static_cast<uint8_t>(group[byte]);
      program_.class_byte[group[byte]] = static_cast<uint8_t>(byte);
    }
  }

  const GrammarSyntax& syntax_;
  GrammarProgram program_;
  bool overflow_ = false;
  size_t work_ = 0;
  std::vector<uint32_t> starts_;  // [rule]
  std::unordered_map<ByteSet, uint32_t, SetHash> set_index_;
  std::map<std::vector<CodePointRange>, uint32_t> classes_;  // start state of the class's rule
  std::unordered_map<uint32_t, uint32_t> rule_of_start_;
  std::vector<uint32_t> seen_, todo_;
  uint32_t stamp_ = 0;
};

}  // namespace

Result<GrammarProgram> CompileGrammar(const GrammarSyntax& syntax) { return GrammarCompiler(syntax).Compile(); }

Grammar::Grammar(std::unique_ptr<Rules> rules) : rules_(std::move(rules)) {}
Grammar::~Grammar() = default;

Result<std::shared_ptr<const Grammar>> Grammar::Parse(std::string_view gbnf) {
  BELLHOP_TRY_ASSIGN(const GrammarSyntax syntax, ParseGbnf(gbnf));
  BELLHOP_TRY_ASSIGN(GrammarProgram program, CompileGrammar(syntax));
  auto rules = std::make_unique<Rules>();
  rules->program = std::move(program);
  return std::shared_ptr<const Grammar>(new Grammar(std::move(rules)));
}

}  // namespace bellhop::decode
