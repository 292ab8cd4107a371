// One rank that uses only the rendezvous. It shows which events the launcher sends to the other ranks: `launcher_rank
// MODE`. Rank 1 acts as MODE says; rank 0 waits for the event and prints it. test/multi/CMakeLists.txt has the
// expectations.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/environment.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store_client.h"

namespace {

using distrun::Status;
namespace net = distrun::net;

constexpr double kTimeLimit = 60;

// On return both ranks have joined. The rank that observes the other no longer waits for a key, because the event would
// end such a wait.
Status meet(net::Store& store, const net::World& world, bool rank_0_acts) {
  const int actor = rank_0_acts ? 0 : 1;
  const auto wait_for = [&](const char* key) { return store.get(key, distrun::deadline_after(kTimeLimit)).status(); };
  if (world.rank != actor) {
    DISTRUN_RETURN_IF_ERROR(wait_for("actor"));
    return store.set("other", "here");
  }
  DISTRUN_RETURN_IF_ERROR(store.set("actor", "here"));
  return wait_for("other");
}

int print_news(net::JobChannel& channel) {
  for (;;) {
    pollfd news{.fd = channel.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&news, 1, static_cast<int>(kTimeLimit * 1000)) <= 0) return 9;
    const auto events = channel.receive();
    if (!events.ok()) return 10;
    for (const net::JobEvent& event : *events) {
      std::printf("news kind %d rank %d signal %d code %d host %s cause %s\n", static_cast<int>(event.kind), event.rank,
                  event.signal, event.exit_code, event.host.c_str(), event.cause.c_str());
    }
    if (!events->empty()) return 0;
  }
}

int act(const std::string& mode, net::StoreClient& client) {
  if (mode == "vanish") return 0;
  if (mode == "fail") return 5;
  if (mode == "killed") ::kill(::getpid(), SIGKILL);
  if (mode == "reports") return client.report_failure({.cause = "ValueError: bad data"}).ok() ? 3 : 11;
  return 12;
}

int run(const std::string& mode) {
  const auto environment = distrun::process_environment();
  const auto world = net::world_from_environment(environment);
  const auto key = net::JobKey::from_environment(environment);
  if (!world.ok() || !key.ok()) return 7;
  auto client = net::StoreClient::connect(*world, *key, distrun::deadline_after(kTimeLimit));
  if (!client.ok()) return 8;
  if (const Status met = meet(**client, *world, mode == "missed"); !met.ok()) return 8;
  if (mode == "leave") return (*client)->leave().ok() ? 0 : 11;
  if (mode == "missed") {
    // Rank 1 leaves in good order. Rank 0 needs it, reports this, and is the first to exit, with an error.
    if (world->rank == 1) return (*client)->leave().ok() ? 0 : 11;
    return (*client)->report_early_leave(1, {.cause = "left, but the test needs it"}).ok() && print_news(**client) == 0
               ? 1
               : 11;
  }
  return world->rank == 1 ? act(mode, **client) : print_news(**client);
}

}  // namespace

int main(int argc, char** argv) {
  const int code = argc == 2 ? run(argv[1]) : 64;
  std::fflush(stdout);
  return code;
}
