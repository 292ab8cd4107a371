// Many virtual ranks, one coordinator, and FIFO channels. A seeded scheduler delivers their messages in random order.
// This tests the agreement without threads, so the seed reproduces a failure.
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "runtime/engine/agreement/coordinator.h"
#include "runtime/engine/run/member.h"

namespace distrun::engine {
namespace {

struct Scenario {
  std::uint32_t seed = 1;
  int ranks = 3;
  int names = 8;
  int rounds = 4;
  std::uint64_t cache_capacity = 4;
  bool early_leave = false;
};

// The signature of a rank's k-th submission of a name. Some (name, k) are mismatches, and some change shape on all
// ranks.
Signature signature_of(const Scenario& s, int rank, int name, int k) {
  Signature signature{.shape = {4}};
  if (name % 4 == 1) signature.kind = OpKind::kAllgather;
  if (name % 4 == 1) signature.shape = {(rank + k / 2) % 5, 3};
  if (name % 4 == 2) signature.shape = {4 + k / 2};
  if (name % 4 == 3 && k == 1 && rank == s.ranks - 1) signature.dtype = DType::kF64;
  if (name % 8 >= 6) signature.group = {.digest = 77, .size = 2, .first = "6"};
  return signature;
}

bool must_fail(const Scenario& s, int name, int k) { return s.ranks > 1 && k == 1 && (name % 4 == 3 || name % 8 >= 6); }

struct Rank {
  Member member;
  std::vector<int> submitted;                      // by name
  std::vector<bool> in_flight;                     // by name
  std::deque<std::pair<std::size_t, Message>> up;  // to the leader, with the log entries that the rank had read by then
  std::size_t read = 0;                            // log entries
  std::vector<std::string> history;                // the events on this rank, for comparison
  bool left = false;
  bool over = false;
};

class Simulation {
 public:
  explicit Simulation(const Scenario& s) : s_(s), random_(s.seed), coordinator_(options(s)) {
    ranks_.resize(static_cast<std::size_t>(s.ranks));
    for (Rank& rank : ranks_) {
      rank.submitted.assign(static_cast<std::size_t>(s.names), 0);
      rank.in_flight.assign(static_cast<std::size_t>(s.names), false);
    }
  }

  void run() {
    const int limit = 2000 * s_.ranks * s_.names * s_.rounds + 100000;
    for (int step = 0; step < limit && !over(); ++step) {
      now_ += std::chrono::microseconds(1);
      const auto r = static_cast<int>(random_() % static_cast<unsigned>(s_.ranks));
      switch (random_() % 4) {
        case 0:
          submit(r);
          break;
        case 1:
          deliver(r);
          break;
        case 2:
          read(r);
          break;
        default:
          act(random_() % 8 == 0);
      }
    }
  }

  [[nodiscard]] bool over() const {
    if (!abort.ok()) return true;
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.over; });
  }
  [[nodiscard]] const std::vector<Rank>& ranks() const { return ranks_; }
  [[nodiscard]] std::size_t log_size() const { return log_.size(); }
  Status abort;

 private:
  static CoordinatorOptions options(const Scenario& s) {
    return {.world_size = s.ranks,
            .hosts = std::vector<std::string>(static_cast<std::size_t>(s.ranks), "host"),
            .fusion_threshold = 64,
            .cache_capacity = s.cache_capacity};
  }

  void submit(int r) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    if (rank.left) return;
    std::vector<int> possible;
    bool done = true;
    for (int name = 0; name < s_.names; ++name) {
      const auto n = static_cast<std::size_t>(name);
      if (rank.submitted[n] < s_.rounds || rank.in_flight[n]) done = false;
      // One call submits both tensors of the group, so both must be free.
      const std::size_t pair = name % 8 >= 6 ? n ^ 1 : n;
      const bool free = !rank.in_flight[n] && (pair >= rank.in_flight.size() || !rank.in_flight[pair]);
      if (rank.submitted[n] < s_.rounds && free) possible.push_back(name);
    }
    const bool early = s_.early_leave && r == s_.ranks - 1 && rank.read > 3;
    if (done || early) {
      rank.left = true;
      rank.up.emplace_back(rank.read, message::Leaving{});
    }
    if (possible.empty() || rank.left) return;
    const int name = possible[random_() % possible.size()];
    submit_one(r, name);
    if (name % 8 >= 6 && (name ^ 1) < s_.names) submit_one(r, name ^ 1);
  }

  void submit_one(int r, int name) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    const auto n = static_cast<std::size_t>(name);
    if (rank.in_flight[n]) return;
    Signature signature = signature_of(s_, r, name, rank.submitted[n]);
    Submission submission{.kind = signature.kind, .name = std::to_string(name), .shape = signature.shape};
    rank.in_flight[n] = true;
    ++rank.submitted[n];
    std::vector<Message> out;
    rank.member.submit(std::make_shared<Tensor>(submission, std::move(signature), now_), out);
    for (Message& one : out) rank.up.emplace_back(rank.read, std::move(one));
  }

  void deliver(int r) {
    auto& up = ranks_[static_cast<std::size_t>(r)].up;
    for (auto count = random_() % 3; count > 0 && !up.empty(); --count) {
      const auto [index, one] = std::move(up.front());
      up.pop_front();
      coordinator_.has_read(r, index);
      if (const auto* submitted = std::get_if<message::Submitted>(&one)) {
        coordinator_.submitted(r, *submitted, now_);
      } else if (const auto* ready = std::get_if<message::Ready>(&one)) {
        for (const TensorId id : ready->ids) coordinator_.ready(r, id, now_);
      } else {
        coordinator_.leave(r);
        coordinator_.drained(r);
      }
    }
  }

  void act(bool busy) {
    const std::vector<int> sets{0};
    Actions actions = coordinator_.act(busy ? std::span<const int>(sets) : std::span<const int>());
    for (Entry& one : actions.entries) log_.push_back(std::move(one));
    if (!actions.abort.ok()) abort = actions.abort;
  }

  void read(int r) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    if (rank.read == log_.size()) return;
    const Entry& one = log_[rank.read++];
    if (const auto* run = std::get_if<entry::Run>(&one)) {
      const auto tensors = rank.member.run(*run);
      REQUIRE(tensors.ok());
      for (const RunTensor& tensor : *tensors) finish(r, *tensor.tensor, tensor.first_dims, "ok");
    } else if (const auto* failed = std::get_if<entry::Fail>(&one)) {
      const auto tensor = rank.member.fail(*failed);
      REQUIRE(tensor.ok());
      finish(r, **tensor, {}, "failed");
    } else if (const auto* evict = std::get_if<entry::Evict>(&one)) {
      rank.member.evict(*evict);
    } else if (std::holds_alternative<entry::Shutdown>(one)) {
      rank.over = true;
    }
  }

  void finish(int r, const Tensor& tensor, const std::vector<std::int64_t>& dims, const std::string& how) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    const int name = std::stoi(tensor.submission().name);
    const auto n = static_cast<std::size_t>(name);
    const int k = rank.submitted[n] - 1;
    CHECK((how == "failed") == must_fail(s_, name, k));
    for (std::size_t other = 0; other < dims.size(); ++other) {
      CHECK(dims[other] == signature_of(s_, static_cast<int>(other), name, k).shape[0]);
    }
    rank.in_flight[n] = false;
    rank.history.push_back(how + " " + std::to_string(name) + " " + std::to_string(k));
  }

  const Scenario s_;
  std::mt19937 random_;
  TimePoint now_{};
  Coordinator coordinator_;
  std::vector<Rank> ranks_;
  std::vector<Entry> log_;
};

void check_sound(const Simulation& simulation, const Scenario& s) {
  INFO("seed " << s.seed << ", ranks " << s.ranks << ", capacity " << s.cache_capacity);
  REQUIRE(simulation.abort.ok());
  REQUIRE(simulation.over());
  const auto& first = simulation.ranks().front();
  CHECK(first.history.size() == static_cast<std::size_t>(s.names * s.rounds));
  for (const Rank& rank : simulation.ranks()) {
    CHECK(rank.history == first.history);
    CHECK(rank.member.waiting() == 0);
    CHECK(rank.member.known() <= s.cache_capacity);
    CHECK(rank.up.empty());
  }
}

TEST_CASE("any order of submissions and messages: all ranks run the same, everything runs, caches stay bounded") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    const int sizes[] = {1, 2, 3, 5, 8};
    const std::uint64_t capacities[] = {0, 1, 4, 100};
    const Scenario s{.seed = seed, .ranks = sizes[seed % 5], .rounds = 6, .cache_capacity = capacities[seed % 4]};
    Simulation simulation(s);
    simulation.run();
    check_sound(simulation, s);
  }
}

TEST_CASE("a thousand ranks agree", "[scale]") {
  const Scenario s{.seed = 7, .ranks = 1000, .names = 8, .rounds = 3, .cache_capacity = 5};
  Simulation simulation(s);
  simulation.run();
  check_sound(simulation, s);
}

TEST_CASE("the same seed gives the same log") {
  const Scenario s{.seed = 42, .ranks = 4};
  Simulation one(s);
  Simulation two(s);
  one.run();
  two.run();
  CHECK(one.log_size() == two.log_size());
  CHECK(one.ranks()[2].history == two.ranks()[2].history);
}

TEST_CASE("a rank that leaves early ends the job with its name, at any moment") {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const Scenario s{.seed = seed, .ranks = 3, .early_leave = true};
    Simulation simulation(s);
    simulation.run();
    INFO("seed " << seed);
    REQUIRE_FALSE(simulation.abort.ok());
    INFO(simulation.abort.message());
    CHECK(simulation.abort.code() == Errc::kRankLeft);
    CHECK(simulation.abort.info().ranks == std::vector<int>{2});
  }
}

}  // namespace
}  // namespace distrun::engine
