// A grammar's pushdown automaton made deterministic as far as it is used. A configuration is a grammar state that
// consumes a byte together with a stack of return states; a node of this automaton is the set of all configurations
// that the text so far allows, and its edges are found when first taken and then remembered. Equal stacks are one
// object, equal sets one node: text that comes back to the same place (the next string of a list) finds everything
// made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "decode/grammar_program.h"

namespace bellhop::decode {

class GrammarAutomaton {
 public:
  static constexpr uint32_t kDead = 0;

  explicit GrammarAutomaton(const GrammarProgram& program);

  uint32_t start() const { return start_; }
  // kDead: the byte may not come next, or a limit was met: status() then is not ok, and stays so.
  uint32_t Step(uint32_t node, uint8_t byte) {
    const uint32_t known = edges_[size_t{node} * classes_ + program_.class_of[byte]];
    return known != kUnknown ? known : FindEdge(node, program_.class_of[byte]);
  }
  bool Complete(uint32_t node) const { return nodes_[node].complete; }
  size_t size() const { return nodes_.size(); }
  const Status& status() const { return status_; }

  // To be called before each piece of work. Gives the automaton a new allowance of time; forgets all but `node` when it
  // has become large, and returns the number that `node` has now.
  uint32_t Prepare(uint32_t node);
  uint64_t generation() const { return generation_; }  // changes when node numbers do

 private:
  static constexpr uint32_t kUnknown = ~uint32_t{0};
  struct Node {
    uint32_t begin = 0, end = 0;  // configurations, sorted
    bool complete = false;
  };
  struct Frame {
    uint32_t state = 0, parent = 0;  // parent 0: the empty stack
  };

  uint32_t FindEdge(uint32_t node, uint8_t byte_class);
  void Reach(uint32_t state, uint32_t stack);  // adds what can be reached without a byte to found_, complete_
  bool Visit(uint64_t configuration);          // false: seen since the last Forget
  void ForgetVisits();
  uint32_t Push(uint32_t state, uint32_t parent);
  uint32_t Intern();  // found_, complete_ as a node
  uint32_t AddNode(bool complete);
  uint32_t Fail();
  void Clear();

  const GrammarProgram& program_;
  size_t classes_;
  uint32_t start_ = 0;
  Status status_;
  uint64_t generation_ = 0;
  size_t work_left_ = 0;

  std::vector<Node> nodes_;
  std::vector<uint32_t> edges_;  // [node][class]
  std::vector<uint64_t> configurations_;
  std::unordered_multimap<uint64_t, uint32_t> node_index_;  // by the set's hash
  std::vector<Frame> frames_;
  std::unordered_map<uint64_t, uint32_t> frame_index_;

  std::vector<uint64_t> found_, todo_;
  bool complete_ = false;
  // Open addressing; an entry counts when its stamp is the current one.
  std::vector<uint64_t> visited_;
  std::vector<uint32_t> visit_stamp_;
  uint32_t stamp_ = 0;
  size_t visits_ = 0;
};

}  // namespace bellhop::decode
