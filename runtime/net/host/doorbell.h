// Wakes a rank that sleeps. If the rank is awake, ringing costs one load.
//
// Each rank has a line in shared memory. Its word is odd while the rank sleeps or is about to sleep. Each rank also has
// an eventfd that its wait set watches. One sleep is the pair of values 2k+1 (asleep) and 2k+2 (awake again).
//
//   sleeper (WaitSet::poll)              writer (any other rank)
//     word := 2k+1        (seq_cst)        flag := new value      (seq_cst; the writer's own data)
//     look at all flags   (seq_cst)        w := word              (seq_cst)
//     nothing: block on the eventfd        w odd: write the eventfd, then CAS word w -> w+1
//     word := 2k+2
//
// No wake-up is lost. The seq_cst operations have one total order S. Take a flag that the look of sleep k did not see.
// In S, its store comes after that look, so it also comes after `word := 2k+1`. So the writer's load of the word
// returns 2k+1 or a later value.
//   - It returns 2k+1: the writer writes the eventfd, and the sleeper wakes.
//   - It returns 2k+2 from another writer's CAS: that writer wrote the eventfd first, and the sleeper wakes.
//   - It returns 2k+2 from the sleeper: the sleeper is awake, and it looks again before its next sleep.
//   - It returns a value of a later sleep: the look of that sleep comes later, and the same argument holds for it.
// The writer writes the eventfd before the CAS. So a writer that dies or is stopped between the two has already sent
// the wake-up. Two writers may then both write the eventfd; that costs one system call more and wakes the sleeper once.
// A late CAS fails, because the word has changed. A late write to the eventfd causes one needless wake-up. The rule for
// callers: write flags with seq_cst stores before ring(), and read them with seq_cst loads.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace distrun::net {

// Two cache lines, because the hardware fetches them in pairs.
struct alignas(128) DoorbellLine {
  std::atomic<std::uint64_t> word{0};
  std::atomic<std::uint32_t> goodbye{0};  // 1: this rank closed its link in good order
};

// One rank's view of all doorbells of its host. Only the holder of the progress token uses it. It owns nothing: the
// lines and descriptors must outlive it.
class Doorbells {
 public:
  // lines[i] and event_fds[i] belong to local index i. `self` is the local index of this rank.
  Doorbells(std::vector<DoorbellLine*> lines, std::vector<int> event_fds, int self);

  void arm();
  void disarm();
  void ring(int index) {
    DoorbellLine& line = *lines_[static_cast<std::size_t>(index)];
    const std::uint64_t word = line.word.load(std::memory_order_seq_cst);
    if (word & 1U) [[unlikely]]
      wake(index, word);
  }
  void send_goodbye();
  [[nodiscard]] bool goodbye_sent(int index) const;
  // Call this after the wait set has reported this rank's eventfd.
  void drain();

 private:
  void wake(int index, std::uint64_t word);

  std::vector<DoorbellLine*> lines_;
  std::vector<int> event_fds_;
  int self_;
  std::uint64_t word_;  // the value that this rank last stored in its line
};

}  // namespace distrun::net
