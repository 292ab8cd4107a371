#include "test/sim/network.h"

#include <algorithm>
#include <map>

namespace distrun::sim {
namespace {

constexpr std::size_t kMostQueued = std::size_t{64} << 20;  // the same as in leader.cc

}  // namespace

class SimControlPlane final : public net::ControlPlane {
 public:
  SimControlPlane(Network& network, int rank) : network_(network), rank_(rank) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return network_.options_.size; }

  Status send(int to, std::span<const std::byte> message) override {
    DISTRUN_CHECK((rank_ == 0) != (to == 0), "members talk to the leader, and the leader to them");
    const auto bytes = std::make_shared<const std::vector<std::byte>>(message.begin(), message.end());
    if (network_.witness_ != nullptr) network_.witness_->sent(rank_, *bytes);
    return queue(to, bytes);
  }
  Status broadcast(std::span<const std::byte> message) override {
    DISTRUN_CHECK(rank_ == 0, "only the leader broadcasts");
    const auto bytes = std::make_shared<const std::vector<std::byte>>(message.begin(), message.end());
    if (network_.witness_ != nullptr) network_.witness_->sent(rank_, *bytes);
    Status first;
    for (int to = 1; to < size(); ++to) {
      const Status status = queue(to, bytes);
      if (first.ok()) first = status;
    }
    return first;
  }
  bool receive(net::Received& out) override {
    auto& inbox = network_.at(rank_).inbox;
    if (inbox.empty()) return false;
    out = {.from = inbox.front().first, .bytes = *inbox.front().second};
    inbox.pop_front();
    if (network_.witness_ != nullptr) network_.witness_->received(rank_, out.bytes);
    return true;
  }
  bool progress() override { return network_.progress(rank_); }
  [[nodiscard]] bool pending() const override { return !network_.at(rank_).outbox.empty(); }
  [[nodiscard]] net::Queued queued() const override { return network_.queued(rank_); }
  void may_go(int member) override { network_.may_go(member); }
  [[nodiscard]] std::optional<EndedLink> lost() const override {
    const auto ended = [](int member) { return EndedLink{.peer = member, .end = LinkEnd::kClosed}; };
    if (rank_ != 0) return network_.at(rank_).alone ? std::optional(ended(0)) : std::nullopt;
    return network_.missed_.empty() ? std::nullopt : std::optional(ended(network_.missed_.front()));
  }

 private:
  Status queue(int to, const Bytes& bytes) {
    if (rank_ == 0 ? network_.at(to).ended : network_.at(rank_).alone) {
      if (rank_ == 0 && network_.at(to).may_go) return {};
      return {Errc::kRankLost, "the connection to rank " + std::to_string(to) + " has ended"};
    }
    network_.at(rank_).outbox.emplace_back(to, bytes);
    return {};
  }

  Network& network_;
  const int rank_;
};

Network::Network(NetworkOptions options, Scheduler& scheduler, Random random, std::function<void(int)> wake)
    : options_(options),
      scheduler_(scheduler),
      random_(random),
      wake_(std::move(wake)),
      ranks_(static_cast<std::size_t>(options.size)) {}

std::unique_ptr<net::ControlPlane> Network::plane(int rank) { return std::make_unique<SimControlPlane>(*this, rank); }

void Network::may_go(int rank) {
  at(rank).may_go = true;
  std::erase(missed_, rank);
}

net::Queued Network::queued(int rank) {
  std::map<int, std::size_t> bytes;  // by destination
  for (const auto& [to, message] : at(rank).outbox) {
    if (!at(to).may_go) bytes[to] += message->size() * options_.weight;
  }
  net::Queued queued;
  for (const auto& [to, of_one] : bytes) queued.add(of_one);
  if (rank == 0 && queued.most > kMostQueued) ++held_;
  return queued;
}

bool Network::progress(int rank) {
  Rank& self = at(rank);
  if (self.outbox.empty() || self.held_until > scheduler_.now()) return false;
  while (!self.outbox.empty()) {
    auto [to, bytes] = std::move(self.outbox.front());
    self.outbox.pop_front();
    hand_over(rank, to, std::move(bytes));
  }
  if (random_.chance(options_.congestion)) {
    self.held_until = scheduler_.now() + random_.up_to(options_.most_delay);
    scheduler_.at(self.held_until, [this, rank] { wake_(rank); });
  }
  return true;
}

void Network::hand_over(int from, int to, Bytes bytes) {
  ++sent_;
  Passing passing{.from = from, .to = to, .bytes = std::move(bytes)};
  if (tamper_) tamper_(passing);
  if (!passing.arrives) return;
  TimePoint& last = last_arrival(from, to);
  last = std::max(last, scheduler_.now() + random_.up_to(options_.most_delay));
  scheduler_.at(last, [this, passing] {
    Rank& receiver = at(passing.to);
    if (receiver.gone || scheduler_.now() > at(passing.from).cut) return;
    receiver.inbox.emplace_back(passing.from, passing.bytes);
    if (passing.wakes) wake_(passing.to);
  });
}

void Network::kill(int rank) {
  at(rank).gone = true;
  at(rank).outbox.clear();
  at(rank).cut = scheduler_.now() + random_.up_to(options_.most_delay);
  end(rank, at(rank).cut);
}

void Network::leave(int rank) {
  at(rank).gone = true;
  end(rank, scheduler_.now());
}

void Network::end(int rank, TimePoint not_before) {
  for (int other = 0; other < options_.size; ++other) {
    if (other == rank || (rank != 0 && other != 0)) continue;
    const TimePoint last = std::min(last_arrival(rank, other), at(rank).cut);
    scheduler_.at(std::max(last, not_before) + random_.up_to(options_.most_delay), [this, rank, other] {
      if (at(other).gone) return;
      if (other == 0) {
        at(rank).ended = true;
        if (!at(rank).may_go) missed_.push_back(rank);
      } else {
        at(other).alone = true;
      }
      wake_(other);
    });
  }
}

}  // namespace distrun::sim
