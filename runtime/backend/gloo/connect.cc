#include "runtime/backend/gloo/connect.h"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/backend/gloo/attempt.h"
#include "runtime/backend/gloo/verify.h"
#include "runtime/base/thread.h"
#include "runtime/net/bytes/open_files.h"

namespace distrun::backend::gloo_plugin {
namespace {

constexpr int kTries = 3;
// Per member: Gloo's listening socket, its connection, and a duplicate of the connection (Sockets). The device needs a
// few.
constexpr std::size_t kFilesForEach = 3;
constexpr std::size_t kFilesOfDevice = 8;
// A member that has succeeded waits this much longer for the others, because they know the error.
constexpr Duration kForTheOthers = std::chrono::seconds(1);

std::string text_of(const std::string& address) {
  return ::gloo::transport::tcp::Address(std::vector<char>(address.begin(), address.end())).str();
}

// Removes the location in Gloo's source code from the start of the text.
std::string plain(const std::string& error) {
  const std::size_t end = error.starts_with('[') ? error.find("] ") : std::string::npos;
  return end != std::string::npos && error.substr(0, end).find(".cc:") != std::string::npos ? error.substr(end + 2)
                                                                                            : error;
}

std::string seconds_text(Duration time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", std::chrono::duration<double>(time).count());
  return text;
}

// One attempt, on this member.
class Try {
 public:
  Try(const distrun_backend_group_spec& spec, const plugin::Host& host, int number)
      : spec_(spec), host_(host), number_(number), attempt_(spec, number) {}

  // Ok if all members are connected. Then take() returns the connections. The first attempt creates the device.
  Attempt::Outcome run(std::shared_ptr<::gloo::transport::Device>& device, TimePoint deadline);
  Connections take() { return std::move(made_); }

 private:
  Status exchange_addresses(std::shared_ptr<::gloo::transport::Device>& device, TimePoint deadline);
  Result<std::string> listen(std::shared_ptr<::gloo::transport::Device>& device);
  void watch(Duration share);
  Attempt::Outcome read_outcome(Duration share);
  Status connect_all();
  Status make();
  // An error with the text `what`, about the connection to member busy_with_.
  Status about_member(const std::string& what) const;

  const distrun_backend_group_spec& spec_;
  const plugin::Host& host_;
  const int number_;
  Attempt attempt_;
  Connections made_;
  std::vector<std::string> own_;    // [i]: the address where this member listens for member i
  std::vector<std::string> peers_;  // [i]: the address where member i listens for this member
  std::atomic<int> busy_with_{-1};  // the member for which this one waits, or -1
  // Belong to the watching thread until it has ended: the outcome, or the exception that prevented it.
  Attempt::Outcome outcome_;
  std::exception_ptr broken_;
};

// Members may arrive at very different times. After all have arrived, the connections take only a moment. So only the
// time after meet() is divided among the attempts.
Attempt::Outcome Try::run(std::shared_ptr<::gloo::transport::Device>& device, TimePoint deadline) {
  if (Status met = exchange_addresses(device, deadline); !met.ok()) return {.status = std::move(met)};
  const Duration share = std::max(deadline - Clock::now(), Duration()) / (kTries - number_ + 1);
  auto watcher = named_thread("distrun-gloo", [this, share] { watch(share); });
  const Status here = watcher.ok() ? connect_all() : watcher.status();
  const bool final = !watcher.ok() || here.code() == Errc::kOutOfMemory;
  here.ok() ? attempt_.well() : attempt_.fail(here, !final);
  watcher.ok() ? watcher->join() : void(outcome_ = attempt_.wait(deadline));
  if (broken_) std::rethrow_exception(broken_);
  if (final) outcome_.status = here;
  return std::move(outcome_);
}

// A member that cannot listen has no addresses. It sends its error to the others instead.
Result<std::string> Try::listen(std::shared_ptr<::gloo::transport::Device>& device) {
  try {
    const std::size_t others = spec_.num_members - 1;
    DISTRUN_RETURN_IF_ERROR(
        net::make_room(kFilesForEach * others + kFilesOfDevice,
                       "gloo needs a connection to each of the group's other " + std::to_string(others) + " members")
            .status());
    ::gloo::transport::tcp::attr address;
    address.hostname = spec_.local_host;
    if (!device) device = ::gloo::transport::tcp::CreateDevice(address);
    made_.mesh = std::make_shared<Mesh>(spec_.index, static_cast<int>(spec_.num_members));
    own_ = made_.mesh->listen(device);
  } catch (const std::bad_alloc&) {
    return Status(Errc::kOutOfMemory, "out of memory");
  } catch (const std::system_error& error) {
    const bool limited = error.code() == std::errc::resource_unavailable_try_again;
    return Status(Errc::kSystem,
                  "Gloo cannot listen for connections: " + plain(error.what()) + (limited ? kProcessLimit : ""));
  } catch (const std::exception& error) {
    return Status(Errc::kSystem, "Gloo cannot listen for connections: " + plain(error.what()));
  }
  std::string all;
  for (const std::string& address : own_) all += address;
  return all;
}

Status Try::exchange_addresses(std::shared_ptr<::gloo::transport::Device>& device, TimePoint deadline) {
  auto answers = attempt_.exchange(listen(device), deadline);
  if (!answers.ok()) return answers.status();
  const auto index = static_cast<std::size_t>(spec_.index);
  peers_.resize(answers->size());
  for (std::size_t member = 0; member < answers->size(); ++member) {
    if (member == index) continue;
    const std::string& all = (*answers)[member];  // its addresses have equal length, and it has none for itself
    const std::size_t length = own_[member].size();
    if (all.size() != length * (spec_.num_members - 1)) {
      return {Errc::kUnsupported,
              "rank " + std::to_string(spec_.members[member]) +
                  " has another version of libgloo. Install the same version on all hosts, or choose another backend "
                  "with --backend"};
    }
    peers_[member] = all.substr(length * (index < member ? index : index - 1), length);
  }
  return {};
}

// Runs on its own thread. Ends the waits of this member if another member has failed or the attempt takes too long.
void Try::watch(Duration share) {
  try {
    outcome_ = read_outcome(share);
  } catch (const std::exception&) {  // for example, no memory
    broken_ = std::current_exception();
  }
  if (broken_ || !outcome_.status.ok()) made_.mesh->end();
}

Attempt::Outcome Try::read_outcome(Duration share) {
  Attempt::Outcome outcome = attempt_.wait(Clock::now() + share);
  const auto late = [&outcome] { return !outcome.status.ok() && outcome.status.code() == Errc::kTimeout; };
  if (late() && busy_with_ < 0) outcome = attempt_.wait(Clock::now() + kForTheOthers);
  if (!late()) return outcome;
  attempt_.fail(busy_with_ < 0 ? Status(Errc::kTimeout, "not all members could connect in " + seconds_text(share))
                               : about_member("nothing came over it in " + seconds_text(share)),
                true);
  return attempt_.wait(Clock::now() + kForTheOthers);
}

Status Try::connect_all() {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return {Errc::kOutOfMemory, "rank " + std::to_string(spec_.members[spec_.index]) + ": out of memory"};
  } catch (const std::exception& error) {
    return about_member(plain(error.what()));
  }
}

Status Try::make() {
  const std::shared_ptr<Mesh>& mesh = made_.mesh;
  for (int member = 0; member < mesh->size; ++member) {
    if (member == mesh->rank) continue;
    busy_with_ = member;
    mesh->connect(member, peers_[static_cast<std::size_t>(member)]);
  }
  // Find the sockets before the proof. Every other member waits for this member's proof, so none can have finished and
  // left.
  auto sockets = Sockets::of(*mesh);
  if (!sockets.ok()) return sockets.status();
  made_.sockets = *std::move(sockets);
  const Status proven = verify_pairs(mesh, host_, busy_with_);
  if (!proven.ok()) return about_member(proven.message());
  busy_with_ = -1;
  made_.direct = std::make_unique<Direct>(mesh);
  return {};
}

Status Try::about_member(const std::string& what) const {
  const int member = busy_with_;
  if (member < 0) return {Errc::kSystem, what};
  const auto end = [this](int index, const std::string& address) {
    return "rank " + std::to_string(spec_.members[index]) + " (" + text_of(address) + ")";
  };
  const auto i = static_cast<std::size_t>(member);
  return {Errc::kSystem,
          "the connection of " + end(spec_.index, own_[i]) + " with " + end(member, peers_[i]) + ": " + what};
}

}  // namespace

Result<Connections> connect_members(const distrun_backend_group_spec& spec, const plugin::Host& host) {
  Connections alone;
  if (spec.num_members == 1) alone.mesh = std::make_shared<Mesh>(0, 1);
  if (alone.mesh) return alone;
  const TimePoint deadline = deadline_after(std::min(spec.seconds, 1e6));
  std::shared_ptr<::gloo::transport::Device> device;
  for (int number = 1;; ++number) {
    Try one(spec, host, number);
    const Attempt::Outcome outcome = one.run(device, deadline);
    if (outcome.status.ok()) return one.take();
    if (!outcome.again) return outcome.status.with_context("gloo did not connect the ranks");
    if (number < kTries) continue;
    return Status(
        outcome.status.code(),
        "gloo did not connect the ranks in " + std::to_string(kTries) +
            " tries, each with other ports. Use --backend tcp, choose another network with --network, or open "
            "the firewall between these hosts (a port scanner disturbs too). The last try: " +
            outcome.status.message());
  }
}

}  // namespace distrun::backend::gloo_plugin
