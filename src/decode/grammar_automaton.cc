#include "decode/grammar_automaton.h"

#include <algorithm>

namespace bellhop::decode {
namespace {

using Kind = GrammarState::Kind;

// JSON grammars have fewer than a hundred configurations at a time. The other limits keep a hostile grammar to some
// tens of milliseconds a token and some tens of megabytes.
constexpr size_t kMaxConfigurations = 4096;            // of one node
constexpr size_t kMaxVisits = 4 * kMaxConfigurations;  // configurations on the way to one node
constexpr size_t kWorkPerCall = size_t{4} << 20;       // configurations visited
constexpr size_t kTrimAt = size_t{1} << 20;            // entries of any table: then it starts anew
constexpr size_t kMaxEntries = 4 * kTrimAt;            // within one call

uint64_t Pair(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }
uint32_t High(uint64_t pair) { return static_cast<uint32_t>(pair >> 32); }
uint32_t Low(uint64_t pair) { return static_cast<uint32_t>(pair); }

uint64_t Mix(uint64_t value) {
  value = (value ^ value >> 32) * 0x9E3779B97F4A7C15u;
  return value ^ value >> 29;
}

}  // namespace

GrammarAutomaton::GrammarAutomaton(const GrammarProgram& program)
    : program_(program), classes_(program.class_byte.size()), visited_(256), visit_stamp_(256, 0) {
  work_left_ = kWorkPerCall;
  Clear();
  ForgetVisits();
  Reach(program_.start, 0);
  start_ = status_.ok() ? Intern() : kDead;
}

void GrammarAutomaton::Clear() {
  nodes_.clear();
  edges_.clear();
  configurations_.clear();
  node_index_.clear();
  frames_.assign(1, {});
  frame_index_.clear();
  nodes_.push_back({});
  edges_.assign(classes_, kDead);
}

uint32_t GrammarAutomaton::Prepare(uint32_t node) {
  work_left_ = kWorkPerCall;
  if (edges_.size() < kTrimAt && configurations_.size() < kTrimAt && frames_.size() < kTrimAt) return node;
  ++generation_;
  if (node == kDead) {
    Clear();
    return kDead;
  }
  const std::vector<uint64_t> kept(configurations_.begin() + nodes_[node].begin,
                                   configurations_.begin() + nodes_[node].end);
  const bool complete = nodes_[node].complete;
  const std::vector<Frame> old = frames_;
  Clear();
  std::unordered_map<uint32_t, uint32_t> moved = {{0, 0}};
  std::vector<uint32_t> path;
  found_.clear();
  for (const uint64_t configuration : kept) {
    uint32_t frame = Low(configuration);
    path.clear();
    for (; moved.find(frame) == moved.end(); frame = old[frame].parent) path.push_back(frame);
    uint32_t stack = moved[frame];
    for (size_t i = path.size(); i-- > 0;) stack = moved[path[i]] = Push(old[path[i]].state, stack);
    found_.push_back(Pair(High(configuration), stack));
  }
  complete_ = complete;
  return Intern();
}

uint32_t GrammarAutomaton::Fail() {
  if (status_.ok()) {
    status_ = InvalidArgument(
        "grammar: too ambiguous: the text so far can be read in more than {} ways, or following it takes too long; "
        "make alternatives begin differently",
        kMaxConfigurations);
  }
  return kDead;
}

uint32_t GrammarAutomaton::FindEdge(uint32_t node, uint8_t byte_class) {
  if (!status_.ok()) return kDead;
  const uint8_t byte = program_.class_byte[byte_class];
  ForgetVisits();
  const size_t end = nodes_[node].end;
  for (size_t i = nodes_[node].begin; i < end && status_.ok(); ++i) {
    const uint64_t configuration = configurations_[i];
    const GrammarState& state = program_.states[High(configuration)];
    if (work_left_ == 0) return Fail();
    --work_left_;
    if (program_.sets[state.a].Has(byte)) Reach(state.b, Low(configuration));
  }
  if (!status_.ok()) return kDead;
  const uint32_t next = Intern();
  if (status_.ok()) edges_[size_t{node} * classes_ + byte_class] = next;
  return next;
}

void GrammarAutomaton::ForgetVisits() {
  found_.clear();
  complete_ = false;
  visits_ = 0;
  if (++stamp_ == 0) {
    std::fill(visit_stamp_.begin(), visit_stamp_.end(), 0);
    stamp_ = 1;
  }
}

bool GrammarAutomaton::Visit(uint64_t configuration) {
  if (2 * visits_ >= visited_.size()) {
    const std::vector<uint64_t> old = std::move(visited_);
    const std::vector<uint32_t> old_stamp = std::move(visit_stamp_);
    visited_.assign(2 * old.size(), 0);
    visit_stamp_.assign(2 * old.size(), 0);
    visits_ = 0;
    for (size_t i = 0; i < old.size(); ++i) {
      if (old_stamp[i] == stamp_) Visit(old[i]);
    }
  }
  const size_t mask = visited_.size() - 1;
  size_t at = static_cast<size_t>(Mix(configuration)) & mask;
  for (; visit_stamp_[at] == stamp_; at = (at + 1) & mask) {
    if (visited_[at] == configuration) return false;
  }
  visited_[at] = configuration;
  visit_stamp_[at] = stamp_;
  ++visits_;
  return true;
}

uint32_t GrammarAutomaton::Push(uint32_t state, uint32_t parent) {
  const auto [entry, added] = frame_index_.try_emplace(Pair(state, parent), static_cast<uint32_t>(frames_.size()));
  if (added) frames_.push_back({state, parent});
  return entry->second;
}

void GrammarAutomaton::Reach(uint32_t state, uint32_t stack) {
  todo_.assign(1, Pair(state, stack));
  while (!todo_.empty()) {
    const uint64_t configuration = todo_.back();
    todo_.pop_back();
    if (!Visit(configuration)) continue;
    if (visits_ > kMaxVisits || found_.size() > kMaxConfigurations || work_left_ == 0 || frames_.size() > kMaxEntries) {
      Fail();
      return;
    }
    --work_left_;
    stack = Low(configuration);
    const GrammarState& at = program_.states[High(configuration)];
    switch (at.kind) {
      case Kind::kBytes: found_.push_back(configuration); break;
      case Kind::kSplit:
        todo_.push_back(Pair(at.a, stack));
        if (at.b != at.a) todo_.push_back(Pair(at.b, stack));
        break;
      case Kind::kCall: {
        // A call that ends its rule needs no frame: right recursion does not grow the stack.
        const bool last = program_.states[at.b].kind == Kind::kEnd;
        todo_.push_back(Pair(at.a, last ? stack : Push(at.b, stack)));
        break;
      }
      case Kind::kEnd:
        if (stack == 0) complete_ = true;
        if (stack != 0) todo_.push_back(Pair(frames_[stack].state, frames_[stack].parent));
        break;
    }
  }
}

uint32_t GrammarAutomaton::AddNode(bool complete) {
  const uint32_t begin = static_cast<uint32_t>(configurations_.size());
  configurations_.insert(configurations_.end(), found_.begin(), found_.end());
  nodes_.push_back({begin, static_cast<uint32_t>(configurations_.size()), complete});
  edges_.resize(edges_.size() + classes_, kUnknown);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t GrammarAutomaton::Intern() {
  if (found_.empty() && !complete_) return kDead;
  std::sort(found_.begin(), found_.end());
  uint64_t hash = complete_ ? 1 : 0;
  for (const uint64_t configuration : found_) hash = Mix(hash + configuration);
  const auto [begin, end] = node_index_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    const Node& node = nodes_[entry->second];
    if (node.complete == complete_ && node.end - node.begin == found_.size() &&
        std::equal(found_.begin(), found_.end(), configurations_.begin() + node.begin)) {
      return entry->second;
    }
  }
  if (edges_.size() > kMaxEntries || configurations_.size() > kMaxEntries) return Fail();
  const uint32_t made = AddNode(complete_);
  node_index_.emplace(hash, made);
  return made;
}

}  // namespace bellhop::decode
