// A sequence's walk through a grammar: which tokens the automaton can read from here.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "decode/grammar.h"
#include "decode/grammar_automaton.h"
#include "decode/token_trie.h"

namespace bellhop::decode {
namespace {

constexpr size_t kMaskCacheBytes = size_t{2} << 20;  // 110 masks of a vocabulary of 151 thousand

void SetBit(HostSpan<uint64_t> mask, TokenId token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

}  // namespace

struct GrammarMatcher::State {
  State(std::shared_ptr<const Grammar> g, std::shared_ptr<const TokenIndex> i)
      : grammar(std::move(g)), index(std::move(i)), automaton(grammar->rules_->program) {
    node = automaton.start();
    words = (static_cast<size_t>(trie().vocab_size) + 63) / 64;
    slots = std::max<size_t>(4, kMaskCacheBytes / (8 * std::max<size_t>(1, words)));
    path.resize(trie().depth + 1);
  }

  const TokenIndex::Trie& trie() const { return *index->trie_; }

  void Prepare() {
    const uint64_t generation = automaton.generation();
    node = automaton.Prepare(node);
    if (generation != automaton.generation()) ForgetMasks();
  }
  void ForgetMasks() {
    slot_of_node.clear();
    node_of_slot.clear();
    next_slot = 0;
  }

  // The slot of the current node's mask, and whether it must still be filled.
  std::pair<size_t, bool> Slot();
  void Fill(HostSpan<uint64_t> mask);
  // Where `bytes` lead from `from`.
  uint32_t Walk(uint32_t from, std::string_view bytes) {
    for (const char byte : bytes) {
      if (from == GrammarAutomaton::kDead) break;
      from = automaton.Step(from, static_cast<uint8_t>(byte));
    }
    return from;
  }
  uint32_t WalkToken(TokenId token);

  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const TokenIndex> index;
  GrammarAutomaton automaton;
  uint32_t node = 0;
  size_t words = 0;
  std::vector<uint32_t> path;  // [depth]: the node after that many bytes

  // Masks of nodes, the oldest replaced first.
  size_t slots = 0, next_slot = 0;
  std::vector<uint64_t> masks;         // [slot][word]
  std::vector<uint32_t> slot_of_node;  // slot + 1; 0: none
  std::vector<uint32_t> node_of_slot;
};

std::pair<size_t, bool> GrammarMatcher::State::Slot() {
  if (slot_of_node.size() <= node) slot_of_node.resize(std::max<size_t>(node + 1, automaton.size()), 0);
  if (slot_of_node[node] != 0) return {slot_of_node[node] - 1, false};
  const size_t slot = next_slot;
  next_slot = (next_slot + 1) % slots;
  if (slot < node_of_slot.size()) {
    slot_of_node[node_of_slot[slot]] = 0;
    node_of_slot[slot] = node;
  } else {
    node_of_slot.push_back(node);
    if (masks.size() < (slot + 1) * words) masks.resize((slot + 1) * words);
  }
  slot_of_node[node] = static_cast<uint32_t>(slot + 1);
  return {slot, true};
}

void GrammarMatcher::State::Fill(HostSpan<uint64_t> mask) {
  const TokenIndex::Trie& tokens = trie();
  std::fill(mask.begin(), mask.end(), 0);
  path[0] = node;
  const size_t count = tokens.nodes.size() - 1;
  for (size_t i = 0; i < count;) {
    const TrieNode& at = tokens.nodes[i];
    const uint32_t next = automaton.Step(path[at.depth - 1], at.byte);
    if (next == GrammarAutomaton::kDead) {
      i = at.end;
      continue;
    }
    path[at.depth] = next;
    ++i;
    for (size_t t = at.first_token; t < tokens.nodes[i].first_token; ++t) SetBit(mask, tokens.tokens[t]);
  }
  if (automaton.Complete(node)) {
    for (const TokenId token : tokens.end_of_generation) SetBit(mask, token);
  }
}

uint32_t GrammarMatcher::State::WalkToken(TokenId token) {
  const uint8_t flags = trie().flags[static_cast<size_t>(token)];
  const std::string_view text = trie().Text(token);
  uint32_t next = GrammarAutomaton::kDead;
  if ((flags & TokenIndex::Trie::kPlain) != 0) next = Walk(node, text);
  if (next == GrammarAutomaton::kDead && (flags & TokenIndex::Trie::kMarked) != 0) {
    next = automaton.Step(node, kTokenMark);
    next = Walk(next, text);
    if (next != GrammarAutomaton::kDead) next = automaton.Step(next, kTokenMark);
  }
  return next;
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenIndex> index)
    : state_(std::make_unique<State>(std::move(grammar), std::move(index))) {}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;

void GrammarMatcher::AllowedTokens(HostSpan<uint64_t> mask) {
  State& s = *state_;
  std::fill(mask.begin(), mask.end(), 0);
  s.Prepare();
  if (!s.automaton.status().ok()) return;
  const auto [slot, empty] = s.Slot();
  const HostSpan<uint64_t> kept(s.masks.data() + slot * s.words, s.words);
  if (empty) s.Fill(kept);
  if (!s.automaton.status().ok()) return;  // the mask is not whole
  std::copy(kept.begin(), kept.end(), mask.begin());
}

Status GrammarMatcher::Accept(TokenId token) {
  State& s = *state_;
  if (token < 0 || token >= s.trie().vocab_size) {
    return InvalidArgument("grammar: token {} is outside the vocabulary of {}", token, s.trie().vocab_size);
  }
  s.Prepare();
  BELLHOP_TRY(s.automaton.status());
  const uint8_t flags = s.trie().flags[static_cast<size_t>(token)];
  if ((flags & TokenIndex::Trie::kEndOfGeneration) != 0 && s.automaton.Complete(s.node)) return Status();
  const uint32_t next = s.WalkToken(token);
  BELLHOP_TRY(s.automaton.status());
  if (next == GrammarAutomaton::kDead) return InvalidArgument("grammar: token {} may not come next", token);
  s.node = next;
  return Status();
}

Status GrammarMatcher::AcceptText(std::string_view bytes) {
  State& s = *state_;
  s.Prepare();
  BELLHOP_TRY(s.automaton.status());
  uint32_t next = s.node;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    next = byte == kTokenMark ? GrammarAutomaton::kDead : s.automaton.Step(next, byte);
    BELLHOP_TRY(s.automaton.status());
    if (next == GrammarAutomaton::kDead) {
      return InvalidArgument("grammar: byte {} of the text, 0x{:02X}, may not come next", i, byte);
    }
  }
  s.node = next;
  return Status();
}

bool GrammarMatcher::complete() const { return state_->automaton.Complete(state_->node); }
const Status& GrammarMatcher::status() const { return state_->automaton.status(); }

}  // namespace bellhop::decode
