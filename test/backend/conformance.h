// The conformance suite: what every backend must do. It is written once (cases_*.cc) for the fixture below. Each
// backend links it with one <backend>_test.cc of about thirty lines, which defines subject().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/net/bytes/wait_set.h"

namespace distrun::test {

// Sets up one group of n ranks. The test's thread constructs it before any rank starts, and destroys it after all have
// ended. It owns everything that the backends need (stores, links, wait sets) and outlives them.
class GroupFixture {
 public:
  virtual ~GroupFixture() = default;
  // Collective. Every rank calls it once, on its own thread (or in its own process). It returns by the deadline. The
  // caller destroys the backend on the same thread.
  virtual Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) = 0;
  // The wait set on which rank `index` blocks when it has nothing to move. Valid after create(). Null: the rank yields.
  virtual net::WaitSet* wait_set(int index) = 0;
};

struct Subject {
  std::string name;                                               // the same as Backend::name()
  std::vector<int> sizes;                                         // group sizes to run, a subset of 1 2 3 4 5 8
  std::function<std::unique_ptr<GroupFixture>(int size)> make;    // ranks as threads of this process
  std::function<std::unique_ptr<GroupFixture>(int size)> forked;  // ranks as forked children; empty: not offered
  // Payloads in bytes at which the implementation changes its behaviour (a slot, a pipeline chunk). The suite runs
  // sizes around them.
  std::vector<std::size_t> boundaries;
  // For tests that a launcher (mpirun) has started once per rank: the index of this process, and a function that gives
  // every rank the texts of all ranks. The only size is then the number of processes. `make` makes this process's part
  // of a group.
  int launched_as = -1;
  std::function<std::vector<std::string>(const std::string& mine)> gather;
};

// Each <backend>_test.cc that links this suite defines it.
const Subject& subject();

}  // namespace distrun::test
