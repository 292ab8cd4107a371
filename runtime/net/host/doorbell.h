// Wakes a rank that sleeps, and costs one load when it does not.
//
// Every rank has one line in shared memory with a word that is odd while the rank sleeps (or is about to), and one
// eventfd that its wait set watches. A sleep is the pair of values 2k+1 (asleep), 2k+2 (awake again).
//
//   sleeper (WaitSet::poll)              writer (any other rank)
//     word := 2k+1        (seq_cst)        flag := new value      (seq_cst; the writer's own data)
//     look at all flags   (seq_cst)        w := word              (seq_cst)
//     nothing: block on the eventfd        w odd: write the eventfd, then CAS word w -> w+1
//     word := 2k+2
//
// No wake-up is lost. seq_cst operations have one total order S. Take a flag that sleep k's look did not see: its store
// comes after that look in S, hence after `word := 2k+1`, hence the writer's load of the word reads 2k+1 or later.
//   - It reads 2k+1: the writer writes the eventfd, the sleeper wakes.
//   - It reads 2k+2 from another writer's CAS: that one wrote the eventfd first, the sleeper wakes.
//   - It reads 2k+2 from the sleeper: awake already, and it looks again before it sleeps again.
//   - It reads a later sleep's value: that sleep's look comes later; the argument holds for it.
// The eventfd is written before the CAS, so that a writer that dies or is stopped between the two has not taken the
// wake-up with it; two writers may then both write the eventfd, which costs a system call and wakes once. A CAS that
// comes late fails, because the word has moved on; an eventfd write that comes late wakes for nothing, once.
// The rule for callers: flags are written with seq_cst stores before ring() and looked at with seq_cst loads.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace distrun::net {

// Two cache lines, since the hardware fetches them in pairs.
struct alignas(128) DoorbellLine {
  std::atomic<std::uint64_t> word{0};
  std::atomic<std::uint32_t> goodbye{0};  // 1: this rank closed its link in good order
};

// One rank's view of all doorbells of its host. For the holder of the progress token. Owns nothing: lines and
// descriptors outlive it.
class Doorbells {
 public:
  // lines[i] and event_fds[i] belong to local index i; `self` is this rank's.
  Doorbells(std::vector<DoorbellLine*> lines, std::vector<int> event_fds, int self);

  void arm();
  void disarm();
  void ring(int index) {
    DoorbellLine& line = *lines_[static_cast<std::size_t>(index)];
    const std::uint64_t word = line.word.load(std::memory_order_seq_cst);
    if (word & 1U) [[unlikely]]
      wake(index, word);
  }
  void say_goodbye();
  [[nodiscard]] bool said_goodbye(int index) const;
  // After the wait set reported the own eventfd.
  void drain();

 private:
  void wake(int index, std::uint64_t word);

  std::vector<DoorbellLine*> lines_;
  std::vector<int> event_fds_;
  int self_;
  std::uint64_t word_;  // what this rank last stored in its own line
};

}  // namespace distrun::net
