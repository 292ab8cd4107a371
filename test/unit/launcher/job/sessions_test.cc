#include "launcher/job/ranks/sessions.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Ranks = std::vector<int>;

TEST_CASE("a rank is in a session until it leaves or ends") {
  Sessions sessions(2);
  CHECK_FALSE(sessions.any());
  sessions.joined(0);
  CHECK(sessions.has(0));
  CHECK_FALSE(sessions.has(1));
  CHECK(sessions.any());
  sessions.left(0);
  CHECK_FALSE(sessions.has(0));
  sessions.joined(0);
  CHECK(sessions.has(0));
  sessions.ended(0);
  CHECK_FALSE(sessions.any());
}

TEST_CASE("a rank waits in init() for the ranks that have not called it as often") {
  Sessions sessions(3);
  CHECK(sessions.awaited_by(0).empty());
  sessions.joined(0);
  CHECK(sessions.awaited_by(0) == Ranks{1, 2});
  CHECK(sessions.awaited_by(1).empty());
  sessions.joined(1);
  sessions.joined(2);
  CHECK(sessions.awaited_by(0).empty());
  // A second session: rank 0 has left the first one, and the others work there.
  sessions.left(0);
  sessions.joined(0);
  CHECK(sessions.awaited_by(0) == Ranks{1, 2});
  CHECK(sessions.awaited_by(1).empty());
}

TEST_CASE("a rank is needed in the latest session, unless it has been through it") {
  Sessions sessions(2);
  CHECK(sessions.latest() == 0);
  sessions.joined(0);
  CHECK(sessions.latest() == 1);
  CHECK(sessions.needs(1, 1));
  sessions.joined(1);
  CHECK(sessions.needs(1, 1));
  sessions.left(1);
  CHECK_FALSE(sessions.needs(1, 1));
  sessions.left(0);
  CHECK(sessions.latest() == 0);
  sessions.joined(0);
  CHECK(sessions.latest() == 2);
  CHECK(sessions.needs(1, 2));
}

}  // namespace
}  // namespace distrun::launcher
