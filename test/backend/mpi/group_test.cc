// How a group gets its communicator, with a fake MPI that the test controls (fake_mpi.c). The test plays the other
// member.
#include "runtime/backend/mpi/group.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "runtime/backend/plugin/host_group.h"
#include "test/support/fake_store.h"

extern "C" {
extern int fake_mpi_inits;
extern int fake_mpi_tasks;
extern int fake_mpi_communicators;
}

namespace distrun::backend::mpi_plugin {
namespace {

// Never destroyed, as in the plug-in.
Process& process() {
  static auto& only = *new Process(plugin::host_table());
  return only;
}

// One of the ranks 4 and 7.
struct Member {
  Result<std::unique_ptr<MpiGroup>> create(double seconds, int index = 0) {
    const std::vector<int> ranks = {4, 7};
    return MpiGroup::create(process(),
                            {.struct_size = sizeof(distrun_backend_group_spec),
                             .index = index,
                             .members = ranks.data(),
                             .num_members = ranks.size(),
                             .id = "group",
                             .local_host = "",
                             .seconds = seconds,
                             .store = &store.table()},
                            plugin::Host(&plugin::host_table(), host.handle()));
  }
  void peer_says(const std::string& key, const std::string& text = "") { REQUIRE(memory.set("mpi/" + key, text).ok()); }

  test::FakeStore memory;
  plugin::HostStore store{memory, "mpi/"};
  plugin::HostGroup host{nullptr, true, nullptr, "mpi", "group"};
};

constexpr double kShort = 0.05;
constexpr double kTimeLimit = 30;

}  // namespace

TEST_CASE("mpi: no call that a member does not come to is made, and who is missing is named by the deadline") {
  fake_mpi_tasks = 2;
  REQUIRE(process().usable({{"OMPI_COMM_WORLD_SIZE", "1"}, {"DISTRUN_RANK", "4"}}, 1, true).ok());
  const auto fails = [](Member& member, double seconds, const std::string& text) {
    const auto made = member.create(seconds);
    REQUIRE_FALSE(made.ok());
    CHECK(made.status().message().find(text) != std::string::npos);
    CHECK(fake_mpi_communicators == 0);
  };
  Member alone;
  fails(alone, kShort, "rank 7 did not answer in time");
  CHECK(fake_mpi_inits == 0);

  Member leaves;  // the peer leaves after it has published its place
  leaves.peer_says("init/1");
  leaves.peer_says("place/1");
  leaves.peer_says("task/1", "1");
  fails(leaves, kShort, "rank 7 did not answer in time");
  CHECK(fake_mpi_inits == 1);

  Member refused;
  refused.peer_says("init/1");
  refused.peer_says("place/1", "only one thread may call it");
  fails(refused, kTimeLimit, "rank 7: only one thread may call it");

  Member both;
  for (const char* key : {"init/1", "place/1", "group/1"}) both.peer_says(key);
  both.peer_says("task/1", "1");
  CHECK(both.create(kTimeLimit).ok());
  CHECK(fake_mpi_communicators == 1);
}

TEST_CASE("mpi: ranks in several worlds hear which library makes them so, and the cure") {
  REQUIRE(process().usable({{"OMPI_COMM_WORLD_SIZE", "1"}, {"DISTRUN_RANK", "4"}}, 1, true).ok());
  const int before = fake_mpi_communicators;
  const auto refused = [before](const std::string& why) {
    Member member;
    member.peer_says("init/1");
    member.peer_says("place/1");
    member.peer_says("task/1", "0");  // the same as this member
    member.peer_says("group/1");
    const auto made = member.create(kTimeLimit);
    REQUIRE_FALSE(made.ok());
    CHECK(made.status().code() == Errc::kUnsupported);
    INFO(made.status().message());
    for (const std::string& text :
         {why, std::string("libmpi.so.40 (Open MPI v4.1.4) puts"), std::string("with one mpirun of this MPI")}) {
      CHECK(made.status().message().find(text) != std::string::npos);
    }
    CHECK(fake_mpi_communicators == before);
  };
  fake_mpi_tasks = 1;  // as with Open MPI under mpiexec.hydra
  refused("puts this rank into a world of 1, and these are 2 ranks");
  fake_mpi_tasks = 2;  // as with two jobs of this size
  refused("puts the ranks into several worlds");
}

TEST_CASE("mpi: a member that is not the first goes by the first one's word") {
  fake_mpi_tasks = 2;
  REQUIRE(process().usable({{"OMPI_COMM_WORLD_SIZE", "1"}, {"DISTRUN_RANK", "7"}}, 1, true).ok());
  const int before = fake_mpi_communicators;
  Member refused;
  refused.peer_says("init/verdict", "rank 4: no MPI here");
  CHECK(refused.create(kTimeLimit, 1).status().message() == "rank 4: no MPI here");
  CHECK(fake_mpi_communicators == before);

  Member both;
  for (const char* step : {"init", "place", "group"}) both.peer_says(std::string(step) + "/verdict");
  both.peer_says("task/0", "1");
  CHECK(both.create(kTimeLimit, 1).ok());
  CHECK(fake_mpi_communicators == before + 1);
}

}  // namespace distrun::backend::mpi_plugin
