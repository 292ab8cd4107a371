// Which tensors get an id. The test runs a coordinator and its members, which use the ids of tensors that they know.
#include "runtime/engine/readiness/tensor_ids.h"

#include <catch2/catch_test_macros.hpp>

#include "runtime/engine/run/member.h"
#include "test/unit/engine/coordinator_options.h"

namespace distrun::engine {
namespace {

using Rows = std::vector<std::int64_t>;

struct Said {
  std::size_t by_id = 0;
  std::size_t evicted = 0;
};

class Ranks {
 public:
  Ranks(int ranks, std::uint64_t capacity) : capacity_(capacity), coordinator_(options(ranks, capacity)) {
    members_.resize(static_cast<std::size_t>(ranks));
  }

  // All ranks submit all these names.
  Said step(const std::vector<std::string>& names) {
    Said said;
    for (const std::string& name : names) {
      for (std::size_t rank = 0; rank < members_.size(); ++rank) submit(rank, name, {.shape = {4}});
      follow(said);
    }
    return said;
  }

  // Runs an alltoall. `splits` has, for each rank, the rows that it sends to each rank. Returns the rows that the log
  // gives to each rank.
  Rows alltoall(const std::vector<Rows>& splits, Said& said) {
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      submit(rank, "all", {.kind = OpKind::kAlltoall, .shape = {100, 2}, .splits = splits[rank]});
    }
    return follow(said);
  }

 private:
  static CoordinatorOptions options(int ranks, std::uint64_t capacity) {
    CoordinatorOptions o = plain_options(ranks);
    o.cache_capacity = capacity;
    return o;
  }

  void submit(std::size_t rank, const std::string& name, Signature signature) {
    const auto tensor = std::make_shared<Tensor>(Submission{.name = name}, std::move(signature), at(0));
    std::vector<Message> messages;
    members_[rank].submit(tensor, messages);
    REQUIRE(messages.size() == 1);
    coordinator_.has_read(static_cast<int>(rank), coordinator_.log_size());
    if (const auto* ready = std::get_if<message::Ready>(&messages.front())) {
      coordinator_.ready(static_cast<int>(rank), ready->ids.front(), at(0));
    } else {
      coordinator_.submitted(static_cast<int>(rank), std::get<message::Submitted>(messages.front()), at(0));
    }
  }

  Rows follow(Said& said) {
    const Actions actions = coordinator_.act();
    REQUIRE(actions.abort.ok());
    Rows rows;
    for (const Entry& one : actions.entries) {
      if (const auto* evict = std::get_if<entry::Evict>(&one)) said.evicted += evict->ids.size();
      if (const auto* run = std::get_if<entry::Run>(&one)) {
        for (const TensorRef& ref : run->tensors) said.by_id += ref.name.empty() ? 1U : 0U;
      }
      for (Member& member : members_) {
        if (const auto* evict = std::get_if<entry::Evict>(&one)) member.evict(*evict);
        if (const auto* run = std::get_if<entry::Run>(&one)) {
          const auto tensors = member.run(*run);
          REQUIRE(tensors.ok());
          rows = tensors->front().first_dims;
        }
        CHECK(member.known() <= capacity_);
      }
    }
    return rows;
  }

  const std::uint64_t capacity_;
  Coordinator coordinator_;
  std::vector<Member> members_;
};

std::vector<std::string> names(const std::string& prefix, int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back(prefix + std::to_string(i));
  return all;
}

TEST_CASE("names that never come again displace none that do, whoever was there first", "[scale]") {
  for (const bool cold_first : {true, false}) {
    Ranks ranks(2, 1024);
    for (int step = 0; step < 5; ++step) {
      const auto cold = names("step " + std::to_string(step) + " message ", 2000);
      if (cold_first) CHECK(ranks.step(cold).by_id == 0);
      const Said said = ranks.step(names("gradient ", 100));
      if (step >= 2) {
        CHECK(said.by_id == 100);
        CHECK(said.evicted == 0);
      }
      if (!cold_first) CHECK(ranks.step(cold).by_id == 0);
    }
  }
}

TEST_CASE("of more names in a cycle than there is room for, as many stay known as there is room for") {
  Ranks ranks(1, 1024);
  ranks.step(names("t", 1500));
  for (int step = 1; step < 4; ++step) {
    const Said said = ranks.step(names("t", 1500));
    CHECK(said.by_id == 1024);
    CHECK(said.evicted == 0);
  }
}

TEST_CASE("a full cache goes over to other names that are used in the place of the old ones, at their second use") {
  Ranks ranks(3, 100);
  for (int step = 0; step < 3; ++step) ranks.step(names("train", 100));
  CHECK(ranks.step(names("evaluate", 100)).by_id == 0);
  CHECK(ranks.step(names("evaluate", 100)).evicted == 100);
  CHECK(ranks.step(names("evaluate", 100)).by_id == 100);
}

TEST_CASE(
    "alltoall with unequal splits that stay gets an id; a rank that changes its own is heard, and the others say the "
    "id") {
  Ranks ranks(2, 16);
  const std::vector<Rows> first = {{1, 2}, {0, 5}};
  Said said;
  for (int step = 0; step < 2; ++step) CHECK(ranks.alltoall(first, said) == Rows{1, 2, 0, 5});
  CHECK(said.by_id == 0);
  for (int step = 0; step < 3; ++step) CHECK(ranks.alltoall(first, said) == Rows{1, 2, 0, 5});
  CHECK(said.by_id == 3);
  CHECK(ranks.alltoall({{1, 2}, {4, 5}}, said) == Rows{1, 2, 4, 5});
  CHECK(ranks.alltoall({{7, 2}, {0, 5}}, said) == Rows{7, 2, 0, 5});
  CHECK(said.by_id == 3);
  CHECK(ranks.alltoall(first, said) == Rows{1, 2, 0, 5});
  CHECK(said.by_id == 4);
  for (int step = 0; step < 3; ++step) CHECK(ranks.alltoall({{50, 50}, {50, 50}}, said) == Rows{100, 100});
  CHECK(said.by_id == 6);
}

TEST_CASE("splits that take turns do not take each other's id, and those that never come again get none") {
  Ranks ranks(2, 16);
  Said said;
  for (std::int64_t step = 0; step < 20; ++step) {
    CHECK(ranks.alltoall({{1, 2}, {3, 4}}, said) == Rows{1, 2, 3, 4});
    CHECK(ranks.alltoall({{1, 2}, {9, step % 2}}, said) == Rows{1, 2, 9, step % 2});
    CHECK(ranks.alltoall({{1, 2}, {8, step}}, said) == Rows{1, 2, 8, step});
  }
  CHECK(said.by_id == 18);
}

TEST_CASE("rows of many pairs take the room of several names") {
  ResponseCache::Record record{.first_dims = Rows(1024)};
  CHECK(ResponseCache::weight_of(record) == 1);
  record.first_dims.resize(std::size_t{256} * 256);
  CHECK(ResponseCache::weight_of(record) == 64);
  for (const std::uint64_t capacity : {63U, 64U}) {
    Ranks ranks(256, capacity);
    const std::vector<Rows> splits(256, Rows(256, 0));
    std::vector<Rows> unequal = splits;
    unequal[3][4] = 1;
    Said said;
    for (int step = 0; step < 4; ++step) ranks.alltoall(unequal, said);
    CHECK(said.by_id == (capacity == 64 ? 2 : 0));
  }
}

TEST_CASE("what ran without an id is remembered, but not for ever") {
  RecentRuns recent;
  for (std::uint64_t now = 1; now <= 100000; ++now) {
    recent.note(now, now);
    recent.note(0, now);
  }
  CHECK(recent.size() < 20000);
  CHECK(recent.last(0) == 100000);
  CHECK(recent.last(99999) == 99999);
  CHECK(recent.last(50000) == 0);
}

}  // namespace
}  // namespace distrun::engine
