// The conformance suite: what every backend must do, written once (cases_*.cc) over the fixture below and linked with
// one <backend>_test.cc of about thirty lines that defines subject().
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

// Brings up one group of n ranks. Made on the test's thread before any rank starts, destroyed after all have ended.
// Whatever the backends need (stores, links, wait sets) lives here and outlives them.
class GroupFixture {
 public:
  virtual ~GroupFixture() = default;
  // Called once by every rank, on its own thread (or in its own process); collective; returns by the deadline. The
  // caller destroys the backend on the same thread.
  virtual Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) = 0;
  // What rank `index` blocks on when it has nothing to move; valid after create(). Null: the rank yields instead.
  virtual net::WaitSet* wait_set(int index) = 0;
};

struct Subject {
  std::string name;                                               // as Backend::name() gives it
  std::vector<int> sizes;                                         // group sizes to run, a subset of 1 2 3 4 5 8
  std::function<std::unique_ptr<GroupFixture>(int size)> make;    // ranks as threads of this process
  std::function<std::unique_ptr<GroupFixture>(int size)> forked;  // ranks as forked children; empty: not offered
  // Payloads in bytes at which the implementation changes behaviour (a slot, a pipeline chunk): the suite runs sizes
  // around them.
  std::vector<std::size_t> boundaries;
  // Where a launcher (mpirun) has started the test once per rank: this process's index, and what gives every rank the
  // texts of all. The one size is then the number of processes, and `make` makes this process's part of a group.
  int launched_as = -1;
  std::function<std::vector<std::string>(const std::string& mine)> gather;
};

// Defined by the <backend>_test.cc that this suite is linked with.
const Subject& subject();

}  // namespace distrun::test
