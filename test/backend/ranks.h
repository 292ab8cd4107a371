// Runs one scenario on all ranks of a group, as threads or as forked processes, and collects their outcomes. Only one
// thread may use Catch2's assertions: scenarios record failures, and expect_success() asserts them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "test/backend/conformance.h"

namespace distrun::test {

struct Outcome {
  std::vector<std::string> failures;
  std::uint64_t digest = 0;
};

// One rank in a scenario. It drives the backend in the way the engine does.
class Rank {
 public:
  Rank(int index, int size, backend::Backend& backend, net::WaitSet* wait_set);

  const int index;
  const int size;

  [[nodiscard]] backend::Backend& backend() { return backend_; }
  [[nodiscard]] bool offers(OpKind kind, DType dtype) { return backend().can(kind, dtype).ok(); }
  [[nodiscard]] bool offers(OpKind kind) const {
    return ((backend_.capabilities().ops >> static_cast<unsigned>(kind)) & 1U) != 0;
  }
  // Returns the token, or 0 after recording a failure.
  std::uint64_t start(const backend::Operation& operation);
  // Drives the backend until every started operation is complete. Returns their statuses by token.
  std::map<std::uint64_t, Status> finish();
  // start() and finish() for one operation that must succeed.
  void run(const backend::Operation& operation, const std::string& what);
  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }  // started and not known to be complete
  // Calls progress() once without blocking. Returns true if anything moved.
  bool look();
  void hear();  // takes the events of the wait set without blocking
  // Calls look() until `done`, and blocks in between as the engine does. Returns false if `done` did not become true in
  // time.
  bool look_until(const std::function<bool()>& done);

  void fail(const std::string& text);
  bool expect(bool holds, const std::string& text);  // returns `holds`
  // Adds bytes that must be equal on all ranks.
  void digest(std::span<const std::byte> bytes);
  [[nodiscard]] const Outcome& outcome() const { return outcome_; }

 private:
  [[nodiscard]] bool must_look() const;  // the rank must look again before it may sleep
  backend::Backend& backend_;
  net::WaitSet* wait_set_;
  TimePoint deadline_;
  std::uint64_t next_token_ = 1;
  std::size_t in_flight_ = 0;
  std::map<std::uint64_t, Status> finished_;
  Outcome outcome_;
};

using Scenario = std::function<void(Rank&)>;

enum class RanksAs { kThreads, kProcesses };

// Makes a group of `size` (from subject()), runs the scenario on every rank and tears the group down.
std::vector<Outcome> run_ranks(RanksAs how, int size, const Scenario& scenario);

// Asserts that no rank failed and all digests are equal; returns the digest.
std::uint64_t expect_success(const std::vector<Outcome>& outcomes);

// The sizes of the subject that the variable TEST_GROUP_SIZES names ("2 3 5"). All sizes if it is not set, or names
// none of them. With sanitizers, groups of eight ranks take minutes.
std::vector<int> group_sizes();

// run_ranks as threads and expect_success, for each of group_sizes().
void for_all_sizes(const Scenario& scenario);

}  // namespace distrun::test
