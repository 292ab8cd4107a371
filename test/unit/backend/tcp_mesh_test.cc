// The members of a mesh in one thread. The test passes their addresses on, and plays the strangers.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/backend/tcp/mesh.h"
#include "runtime/backend/tcp/ring.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::backend::tcp {
namespace {

constexpr double kTimeLimit = 60;  // seconds; only a hang reaches it
constexpr std::size_t kAddressBytes = 64;

struct Job {
  net::World world;
  net::JobKey key = net::JobKey::generate();
};

struct MeshMember {
  MeshMember(const Job& job, int index, int size) : wait_set(*net::WaitSet::create()) {
    GroupSpec group{.id = "g", .members = {}, .index = index};
    for (int rank = 0; rank < size; ++rank) group.members.push_back(rank);
    auto made =
        Mesh::open(group, {.world = &job.world, .key = &job.key, .wait_set = wait_set.get()}, {},
                   {.connected = [this](std::size_t peer, DataLink link) { connected[peer] = std::move(link.fd); },
                    .failed = [this](std::size_t peer, const Status& why) { failed[peer] = why; }});
    REQUIRE(made.ok());
    mesh = *std::move(made);
  }
  [[nodiscard]] std::string address() const {
    const auto* text = reinterpret_cast<const char*>(mesh->addresses().segments[0].in);
    return {text, ::strnlen(text, kAddressBytes)};
  }
  void learn(std::size_t peer, const std::string& address) const {
    std::memcpy(mesh->addresses().segments[0].out + peer * kAddressBytes, address.data(), address.size());
  }

  std::unique_ptr<net::WaitSet> wait_set;
  std::unique_ptr<Mesh> mesh;
  std::map<std::size_t, Fd> connected;
  std::map<std::size_t, Status> failed;
};

using MeshMembers = std::vector<std::unique_ptr<MeshMember>>;

MeshMembers make_members(const Job& job, int size) {
  MeshMembers members;
  for (int i = 0; i < size; ++i) members.push_back(std::make_unique<MeshMember>(job, i, size));
  for (const auto& to : members) {
    for (std::size_t from = 0; from < members.size(); ++from) to->learn(from, members[from]->address());
  }
  return members;
}

// Calls `look` between the turns of the members, until it returns true. Returns false if this did not happen in time.
template <class Look>
bool drive(const MeshMembers& members, Look look) {
  const TimePoint deadline = deadline_after(kTimeLimit);
  while (Clock::now() < deadline) {
    for (const auto& member : members) REQUIRE(member->wait_set->poll(Clock::now()).ok());
    if (look()) return true;
    std::this_thread::yield();
  }
  return false;
}

// Member 0 of two, which must connect to member 1. The test plays member 1 and listens there.
struct Alone {
  Alone() {
    auto made = net::listen_stream(address);
    REQUIRE(made.ok());
    listening = *std::move(made);
    members.push_back(std::make_unique<MeshMember>(job, 0, 2));
    members[0]->learn(1, net::to_string(address));
  }
  // Accepts and closes each connection, at most `times` or until the member gives up. Returns the number of
  // connections.
  int drop(int times) {
    int came = 0;
    const bool ended = drive(members, [&] {
      auto fd = net::accept_stream(listening.get());
      if (fd.ok() && fd->valid()) ++came;
      return came == times || !members[0]->failed.empty();
    });
    REQUIRE(ended);
    return came;
  }

  Job job;
  net::Address address{.host = "127.0.0.1"};
  Fd listening;
  MeshMembers members;
};

}  // namespace

TEST_CASE("tcp mesh: all pairs find each other, whoever else comes to their ports") {
  for (const int size : {2, 3, 4, 5, 8}) {
    const Job job;
    const MeshMembers members = make_members(job, size);
    std::vector<Fd> strangers;
    for (const auto& member : members) {
      for (const std::string& says :
           {std::string(100000, '\xff'), std::string("GET / HTTP/1.1\r\n\r\n"), std::string()}) {
        auto fd = net::connect_stream(*net::parse_address(member->address()), deadline_after(kTimeLimit));
        REQUIRE(fd.ok());
        (void)::send(fd->get(), says.data(), says.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        strangers.push_back(*std::move(fd));
      }
    }
    for (const auto& member : members) member->mesh->connect();
    const auto complete = [&](const auto& member) { return member->connected.size() + 1 == members.size(); };
    CHECK(drive(members, [&] { return std::ranges::all_of(members, complete); }));
    for (std::size_t a = 0; a < members.size(); ++a) {
      CHECK(members[a]->failed.empty());
      for (const auto& [b, fd] : members[a]->connected) {
        const auto sent = static_cast<char>(10 * a + b);
        CHECK(::send(fd.get(), &sent, 1, MSG_NOSIGNAL) == 1);
        char heard = 0;
        CHECK(::recv(members[b]->connected[a].get(), &heard, 1, 0) == 1);
        CHECK(heard == sent);
      }
    }
  }
}

TEST_CASE("tcp mesh: who is dropped comes again, as often as it takes") {
  Alone alone;
  alone.members[0]->mesh->connect();
  CHECK(alone.drop(50) == 50);
  auto listener = net::listen_secure_on(
      std::move(alone.listening), net::to_string(alone.address), alone.job.key,
      {.purpose = "tcp pair:g", .job_id = alone.job.world.job_id, .from = 1, .version = kRingVersion});
  REQUIRE(listener.ok());
  std::unique_ptr<net::SecureSocket> peer;
  CHECK(drive(alone.members, [&] {
    (*listener)->progress(Clock::now(), {}, [&](std::unique_ptr<net::SecureSocket> one) { peer = std::move(one); });
    return peer != nullptr && !alone.members[0]->connected.empty();
  }));
}

TEST_CASE("tcp mesh: a port that drops everybody is an error in the end") {
  Alone alone;
  alone.members[0]->mesh->connect();
  const int came = alone.drop(100000);
  CHECK(came < 2000);
  REQUIRE(alone.members[0]->failed.contains(1));
  const std::string& text = alone.members[0]->failed[1].message();
  CHECK(text.find("connecting to rank 1 at " + net::to_string(alone.address)) != std::string::npos);
}

TEST_CASE("tcp mesh: what is no address ends the group, not one tensor alone") {
  Alone alone;
  alone.members[0]->learn(1, "no address at all");
  alone.members[0]->mesh->connect();
  REQUIRE(alone.members[0]->failed.contains(1));
  CHECK(alone.members[0]->failed[1].code() == Errc::kInternal);
}

TEST_CASE("tcp mesh: who has stopped refuses nobody, who is gone does") {
  for (const bool on_its_way : {false, true}) {
    const Job job;
    const MeshMembers members = make_members(job, 3);  // member 0 connects to member 1
    if (!on_its_way) members[1]->mesh->stop();
    members[0]->mesh->connect();
    members[1]->mesh->stop();
    // The connection is there, and no message comes over it.
    while (*members[0]->wait_set->poll(deadline_after(0.1)) > 0) continue;
    CHECK(*members[1]->wait_set->poll(Clock::now()) == 0);
    CHECK(members[0]->failed.empty());
    CHECK(members[0]->connected.empty());
    members[1]->mesh.reset();
    CHECK(drive(members, [&] { return !members[0]->failed.empty(); }));
    CHECK(members[0]->failed[1].message().find("refused") != std::string::npos);
  }
}

TEST_CASE("tcp mesh: who stops before it knows that it was accepted is not gone") {
  const Job job;
  const MeshMembers members = make_members(job, 3);
  members[0]->mesh->connect();
  const TimePoint deadline = deadline_after(kTimeLimit);
  while (members[1]->connected.empty() && Clock::now() < deadline) {
    REQUIRE(members[0]->connected.empty());
    REQUIRE(members[0]->wait_set->poll(deadline_after(0.01)).ok());
    REQUIRE(members[1]->wait_set->poll(deadline_after(0.01)).ok());
  }
  members[0]->mesh->stop();
  const int fd = members[1]->connected.at(0).get();
  CHECK(net::wait_ready(fd, POLLIN, Clock::now()).code() == Errc::kTimeout);
  members[0]->mesh.reset();
  CHECK(net::wait_ready(fd, POLLIN, deadline).ok());
}

}  // namespace distrun::backend::tcp
