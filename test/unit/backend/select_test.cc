#include "runtime/backend/select.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace distrun::backend {
namespace {

constexpr std::uint32_t kCpuOnly = 1U;
constexpr std::uint32_t kCudaOnly = 2U;

Offer offer(const std::string& name, int score, std::uint32_t devices = kCpuOnly) {
  return {.backend = name,
          .available = true,
          .reason = name + " works",
          .score = score,
          .capabilities = {.devices = devices}};
}
Offer refused(const std::string& name, const std::string& reason, std::uint32_t devices = kCpuOnly) {
  return {.backend = name, .reason = reason, .capabilities = {.devices = devices}};
}

struct Group {
  std::vector<std::vector<Offer>> offers;
  std::vector<int> members;
  std::vector<std::string> hosts;
};

// The members are the world ranks 3, 4, ... on the hosts node3, node4, ...
Group group_of(std::vector<std::vector<Offer>> offers) {
  Group group = {.offers = std::move(offers)};
  for (std::size_t i = 0; i < group.offers.size(); ++i) {
    group.members.push_back(static_cast<int>(i) + 3);
    group.hosts.push_back("node" + std::to_string(i + 3));
  }
  return group;
}

Result<Selection> choose(const Group& group, const std::string& forced = "auto", DeviceType device = DeviceType::kCpu) {
  constexpr bool kWholeJob = true;
  return select(device, group.offers, group.members, group.hosts, forced, kWholeJob);
}

std::string loser(const Selection& selection, const std::string& backend) {
  for (const Loser& one : selection.losers) {
    if (one.backend == backend) return one.reason;
  }
  return "(not among the losers)";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::vector<Offer> kBoth = {offer("shm", 80), offer("tcp", 50)};

}  // namespace

TEST_CASE("select: the highest score wins and the losers say why") {
  const auto selection = choose(group_of({kBoth, kBoth}));
  REQUIRE(selection.ok());
  CHECK(selection->backend == "shm");
  CHECK(selection->reason == "shm works");
  REQUIRE(selection->losers.size() == 1);
  CHECK(loser(*selection, "tcp") == "lower score (50 < 80)");
}

TEST_CASE("select: what one member lacks nobody uses, and the text names rank and host") {
  const auto selection = choose(group_of({kBoth, {refused("shm", "memfd refused"), offer("tcp", 50)}}));
  REQUIRE(selection.ok());
  CHECK(selection->backend == "tcp");
  CHECK(loser(*selection, "shm") == "rank 4 (node4): not available: memfd refused");

  const auto absent = choose(group_of({kBoth, {offer("tcp", 50)}}));
  REQUIRE(absent.ok());
  CHECK(loser(*absent, "shm") == "rank 4 (node4): it is not installed");
  const auto absent_first = choose(group_of({{offer("tcp", 50)}, kBoth}));
  REQUIRE(absent_first.ok());
  CHECK(loser(*absent_first, "shm") == "rank 3 (node3): it is not installed");
}

TEST_CASE("select: does not depend on the order of offers, and ties are broken by name") {
  std::vector<Offer> reversed = kBoth;
  std::reverse(reversed.begin(), reversed.end());
  CHECK(choose(group_of({kBoth, reversed}))->backend == choose(group_of({reversed, kBoth}))->backend);
  const std::vector<Offer> equal = {offer("zeta", 50), offer("alpha", 50)};
  const auto selection = choose(group_of({equal}));
  REQUIRE(selection.ok());
  CHECK(selection->backend == "alpha");
  CHECK(loser(*selection, "zeta") == "same score, but later in the alphabet (50 = 50)");
}

TEST_CASE("select: a group can do what all members can") {
  Offer newer = offer("mpi", 60, kCpuOnly | kCudaOnly);
  newer.capabilities.ops = 0x3f;
  newer.capabilities.dtypes = 0x3ff;
  Offer older = offer("mpi", 60);
  older.capabilities.ops = 0x1f;
  older.capabilities.dtypes = 0x7ff;
  for (const auto& offers : {std::vector{newer, older}, std::vector{older, newer}}) {
    const auto selection = choose(group_of({{offers[0]}, {offers[1]}}));
    REQUIRE(selection.ok());
    CHECK(selection->capabilities.ops == 0x1f);
    CHECK(selection->capabilities.dtypes == 0x3ff);
    CHECK(selection->capabilities.devices == kCpuOnly);
  }
}

TEST_CASE("select: a backend that goes about it in different ways on two members is used by none") {
  Offer scales = offer("mpi", 60);
  scales.capabilities.scatter_gather = true;
  const auto selection = choose(group_of({{scales, offer("tcp", 50)}, {offer("mpi", 60), offer("tcp", 50)}}));
  REQUIRE(selection.ok());
  CHECK(selection->backend == "tcp");
  CHECK(loser(*selection, "mpi") ==
        "rank 4 (node4) has another version of it, which does not scale by itself (scatter_gather), but that of rank 3 "
        "(node3) does. Install the same version on all hosts");
  Offer one_by_one = offer("mpi", 60);
  one_by_one.capabilities.exclusive = true;
  const auto forced = choose(group_of({{offer("mpi", 60)}, {one_by_one}}), "mpi");
  REQUIRE_FALSE(forced.ok());
  CHECK(contains(forced.status().message(), "rank 4 (node4) has another version of it"));
  CHECK(contains(forced.status().message(), "needs_total_order"));
  // Members may differ in how they detect the end of their own work.
  Offer asks = offer("mpi", 60);
  asks.capabilities.moved_by = MovedBy::kCalls;
  CHECK(choose(group_of({{offer("mpi", 60)}, {asks}}))->backend == "mpi");
}

TEST_CASE("select: the group's score is the lowest of its members") {
  const auto selection = choose(group_of({{offer("shm", 80), offer("tcp", 50)}, {offer("shm", 10), offer("tcp", 50)}}));
  REQUIRE(selection.ok());
  CHECK(selection->backend == "tcp");
  CHECK(loser(*selection, "shm") == "lower score (10 < 50)");
}

TEST_CASE("select: a bare name forces a backend") {
  const auto selection = choose(group_of({kBoth, kBoth}), "tcp");
  REQUIRE(selection.ok());
  CHECK(selection->backend == "tcp");
  CHECK(contains(selection->reason, "--backend tcp"));
  CHECK(contains(loser(*selection, "shm"), "--backend tcp"));
}

TEST_CASE("select: a bare name binds only the device types that it supports") {
  const std::vector<Offer> offers = {offer("shm", 80), offer("tcp", 50), offer("nccl", 90, kCudaOnly)};
  CHECK(choose(group_of({offers}), "nccl")->backend == "shm");
  CHECK(choose(group_of({offers}), "nccl", DeviceType::kCuda)->backend == "nccl");
  CHECK(choose(group_of({offers}), "tcp", DeviceType::kCuda)->backend == "nccl");
}

TEST_CASE("select: a bare name does not bind a device type that a member's build of the backend lacks") {
  const std::vector<Offer> aware = {offer("mpi", 20, kCpuOnly | kCudaOnly), offer("nccl", 90, kCudaOnly)};
  const std::vector<Offer> plain = {offer("mpi", 20), offer("nccl", 90, kCudaOnly)};
  for (const auto& group : {group_of({aware, plain}), group_of({plain, aware})}) {
    CHECK(choose(group, "mpi")->backend == "mpi");
    CHECK(choose(group, "mpi", DeviceType::kCuda)->backend == "nccl");
    CHECK_FALSE(asks_for(DeviceType::kCuda, group.offers, "mpi"));
    CHECK_FALSE(choose(group, "cuda:mpi", DeviceType::kCuda).ok());
  }
  // A member that lacks the backend itself still prevents it.
  const Group absent = group_of({aware, {refused("mpi", "libmpi.so.40 not found", 0), offer("nccl", 90, kCudaOnly)}});
  CHECK(contains(choose(absent, "mpi", DeviceType::kCuda).status().message(), "libmpi.so.40 not found"));
  CHECK(asks_for(DeviceType::kCuda, absent.offers, "mpi"));
}

TEST_CASE("select: one name per device") {
  const std::vector<Offer> offers = {offer("shm", 80), offer("tcp", 50), offer("nccl", 90, kCudaOnly)};
  const Group group = group_of({offers, offers});
  CHECK(choose(group, "cpu:tcp,cuda:nccl")->backend == "tcp");
  CHECK(choose(group, "cpu:tcp,cuda:nccl", DeviceType::kCuda)->backend == "nccl");
  CHECK(choose(group, "cuda:nccl")->backend == "shm");
  CHECK(choose(group, "cpu:auto")->backend == "shm");
  CHECK(choose(group, "tcp,cpu:shm")->backend == "shm");
  CHECK(choose(group, "cpu:shm,tcp")->backend == "shm");
  const auto wrong_device = choose(group, "cuda:tcp", DeviceType::kCuda);
  REQUIRE_FALSE(wrong_device.ok());
  CHECK(contains(wrong_device.status().message(), "tcp: does not support cuda tensors (tcp works)"));
}

TEST_CASE("select: an impossible choice says why and what to do") {
  const Group group = group_of({kBoth, {refused("shm", "ranks 3 and 4 are on different hosts"), offer("tcp", 50)}});
  const auto refused_choice = choose(group, "shm");
  REQUIRE_FALSE(refused_choice.ok());
  CHECK(refused_choice.status().code() == Errc::kUnsupported);
  const std::string& text = refused_choice.status().message();
  CHECK(contains(text, "--backend shm (DISTRUN_BACKEND) is not possible for these ranks"));
  CHECK(contains(text, "rank 4 (node4): not available: ranks 3 and 4 are on different hosts"));
  CHECK(text.ends_with("). Leave it out, or choose one of: tcp."));

  const std::vector<Offer> none = {refused("shm", "memfd refused"), refused("tcp", "no route")};
  const auto no_other = choose(group_of({none, none}), "tcp");
  REQUIRE_FALSE(no_other.ok());
  CHECK(contains(no_other.status().message(),
                 "). Repair this, because no other backend is possible (shm: rank 3 (node3): not available: "
                 "memfd refused; tcp: "));

  const auto unknown = choose(group, "warp");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.status().message().starts_with("There is no backend warp. Choose "));
  CHECK(unknown.status().message().ends_with(" for --backend (DISTRUN_BACKEND)."));

  // One rank alone has nothing to move. A request for an unknown backend is still an error.
  const Group one = group_of({{refused("shm", "one rank has nobody to share with"), offer("self", 100)}});
  CHECK(choose(one, "shm")->backend == "self");
  CHECK(choose(one, "cpu:shm")->backend == "self");
  CHECK_FALSE(choose(one, "warp").ok());

  // The backend is not available on any member. Its device types are then unknown, so the request is not silently
  // dropped.
  const auto missing = choose(group_of({{refused("mpi", "libmpi.so.40 not found", 0), offer("tcp", 50)}}), "mpi");
  REQUIRE_FALSE(missing.ok());
  CHECK(contains(missing.status().message(), "libmpi.so.40 not found"));
}

TEST_CASE("select: what has nothing to do in a group is another's work, though it was asked for") {
  Offer idle = offer("pairs", 60);
  idle.nothing_to_do = "no host has two of the ranks";
  const std::vector<Offer> nothing = {idle, offer("tcp", 50)};
  const std::vector<Offer> something = {offer("pairs", 60), offer("tcp", 50)};
  const Group none = group_of({nothing, nothing});
  const auto choose_in_set = [](const Group& group, const std::string& forced) {
    return select(DeviceType::kCpu, group.offers, group.members, group.hosts, forced, false);
  };
  for (const std::string forced : {"pairs", "cpu:pairs"}) {
    const auto selection = choose_in_set(none, forced);
    REQUIRE(selection.ok());
    CHECK(selection->backend == "tcp");
    CHECK(selection->reason ==
          "tcp works; pairs (--backend " + forced + ") has nothing to do: no host has two of the ranks");
    CHECK(loser(*selection, "pairs") == "has nothing to do: no host has two of the ranks");
    // The whole job was forced to use it.
    CHECK(contains(choose(none, forced).status().message(), "pairs: has nothing to do: no host has two of the ranks"));
    // One member that has something to do is enough.
    CHECK(choose_in_set(group_of({nothing, something}), forced)->backend == "pairs");
  }
  CHECK(choose(none)->reason == "tcp works");

  // Another obstacle is an error in a set too.
  CHECK_FALSE(choose_in_set(group_of({{refused("pairs", "no memory"), offer("tcp", 50)}, nothing}), "pairs").ok());
}

TEST_CASE("select: nothing available lists every reason") {
  const Group group = group_of({{refused("shm", "memfd refused"), refused("tcp", "no route")}});
  const auto none = choose(group);
  REQUIRE_FALSE(none.ok());
  CHECK(none.status().code() == Errc::kUnsupported);
  CHECK(contains(none.status().message(), "shm: rank 3 (node3): not available: memfd refused"));
  CHECK(contains(none.status().message(), "tcp: rank 3 (node3): not available: no route"));
  const auto no_cuda = choose(group_of({kBoth}), "auto", DeviceType::kCuda);
  REQUIRE_FALSE(no_cuda.ok());
  CHECK(contains(no_cuda.status().message(), "No backend can move cuda tensors"));
}

TEST_CASE("select: a setting asks for a device type that it names, or that its backend is for") {
  const auto asks = [](const std::string& forced, DeviceType device) {
    const std::vector<Offer> member = {offer("tcp", 50), refused("nccl", "no GPU", kCudaOnly)};
    return asks_for(device, {member, member}, forced);
  };
  CHECK(asks("nccl", DeviceType::kCuda));
  CHECK(asks("cpu:tcp,cuda:nccl", DeviceType::kCuda));
  CHECK(asks("tcp", DeviceType::kCpu));
  CHECK_FALSE(asks("tcp", DeviceType::kCuda));
  CHECK_FALSE(asks("nccl", DeviceType::kCpu));
  CHECK_FALSE(asks("cpu:tcp", DeviceType::kCuda));
  CHECK_FALSE(asks("auto", DeviceType::kCuda));
  CHECK_FALSE(asks("cuda:auto", DeviceType::kCuda));
  CHECK_FALSE(asks("cpu:tcp,cuda:auto", DeviceType::kCuda));
  CHECK_FALSE(asks("nccl,cuda:auto", DeviceType::kCuda));
}

}  // namespace distrun::backend
