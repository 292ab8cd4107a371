// Parts that the states of a job need, for tests that play the agents: links over pipes, and a rendezvous and an output
// that only record.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/job/ranks/rank_output.h"
#include "launcher/spawn/process.h"
#include "runtime/net/store/store_server.h"

namespace distrun::launcher {

struct FakeOutput final : RankOutput {
  void print(const std::string& text) override { said.push_back(text); }
  void write(const StreamBytes& bytes, TimePoint) override { written.push_back(bytes.rank); }
  void finish(int rank, TimePoint) override { finished.push_back(rank); }
  void keep_back(int rank) override { followers.push_back(rank); }
  void failed(int rank) override { failures.push_back(rank); }
  void keep_back_all_but(int rank) override { kept_back.push_back(rank); }
  void show_kept_back(int rank, TimePoint) override { shown.push_back(rank); }
  void fold_interrupts(const std::vector<int>& ranks) override { interrupts = ranks; }
  [[nodiscard]] std::vector<int> interrupted() const override { return interrupts; }
  [[nodiscard]] std::vector<std::string> last_lines(int rank) const override {
    return {"line of " + std::to_string(rank)};
  }
  [[nodiscard]] bool shows_last_lines(int) override { return last_lines_shown; }
  [[nodiscard]] std::string last_word(int rank) const override {
    const auto found = words.find(rank);
    return found == words.end() ? "word of " + std::to_string(rank) : found->second;
  }
  [[nodiscard]] std::optional<RaisedException> last_exception(int rank) const override {
    const auto found = exceptions.find(rank);
    return found == exceptions.end() ? std::nullopt : std::optional(found->second);
  }
  std::map<int, RaisedException> exceptions;
  std::map<int, std::string> words;
  bool last_lines_shown = false;
  std::vector<std::string> said;
  std::vector<int> written, finished, followers, failures, kept_back, shown, interrupts;
};

class FakeStore final : public net::StoreServer {
 public:
  FakeStore() : pipe_(*make_pipe()) {}
  [[nodiscard]] const std::string& address() const override { return address_; }
  [[nodiscard]] int fd() const override { return pipe_.first.get(); }
  void reserve(std::vector<Fd>) override {}
  void progress(TimePoint) override {}
  void publish(const net::JobEvent& event) override { published.push_back(event); }
  bool send_event(int rank, const net::JobEvent& event) override {
    sent.emplace_back(rank, event);
    return !absent.contains(rank);
  }
  std::vector<net::StoreNotice> take_notices() override { return std::exchange(notices, {}); }
  std::vector<net::JobEvent> published;
  std::vector<std::pair<int, net::JobEvent>> sent;
  std::set<int> absent;  // these ranks are not connected
  std::vector<net::StoreNotice> notices;

 private:
  std::string address_ = "127.0.0.1:7";
  std::pair<Fd, Fd> pipe_;
};

// Keeps the other ends of the links, by host.
class FakeSpawner : public AgentSpawner {
 public:
  Result<AgentHandle> start(const std::string& host, const std::string&) override {
    if (unreachable == host) return Status(Errc::kSystem, "no way to " + host);
    auto down = make_pipe();
    auto up = make_pipe();
    REQUIRE((down.ok() && up.ok()));
    FramePipe& agent = agents[host] = FramePipe(std::move(down->first), std::move(up->second));
    agent.greet(kAgentGreeting);
    return AgentHandle{.process = {}, .pipe = FramePipe(std::move(up->first), std::move(down->second)), .errors = {}};
  }
  // The frames that the host has received since the last call.
  std::vector<Frame> sent_to(const std::string& host) { return agents.at(host).receive(); }
  std::map<std::string, FramePipe> agents;
  std::string unreachable;
};

// An assignment with two ranks on each host.
inline Assignment assignment_of(const std::vector<std::string>& hosts) {
  Assignment out{.hosts = hosts, .users = std::vector<std::string>(hosts.size()), .slots = {}};
  for (int rank = 0; rank < 2 * static_cast<int>(hosts.size()); ++rank) {
    out.places.push_back({.rank = rank,
                          .host = rank / 2,
                          .local_rank = rank % 2,
                          .local_size = 2,
                          .cross_rank = rank / 2,
                          .cross_size = static_cast<int>(hosts.size())});
    if (rank % 2 == 0) out.slots.push_back(2);
  }
  return out;
}

template <class Message>
Frame frame_of(FromAgent type, const Message& message) {
  return {.type = static_cast<std::uint8_t>(type), .payload = encode(message)};
}

inline bool has(const std::vector<Frame>& frames, ToAgent type) {
  for (const Frame& frame : frames) {
    if (frame.type == static_cast<std::uint8_t>(type)) return true;
  }
  return false;
}

}  // namespace distrun::launcher
