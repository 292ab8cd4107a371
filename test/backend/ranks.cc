#include "test/backend/ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <exception>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/base/environment.h"
#include "runtime/base/fd.h"
#include "test/backend/results.h"

namespace distrun::test {
namespace {

// Large, so that only a hang reaches it: the suite runs under sanitizers on loaded machines.
constexpr double kDeadlineSeconds = 120;
constexpr std::size_t kMaxFailures = 5;

Outcome failed(const std::string& text) { return {.failures = {text}}; }

Outcome run_rank(GroupFixture& group, int index, int size, const Scenario& scenario) {
  try {
    auto backend = group.create(index, deadline_after(kDeadlineSeconds));
    if (!backend.ok()) return failed("create: " + backend.status().message());
    Rank rank(index, size, **backend, group.wait_set(index));
    rank.expect((*backend)->name() == subject().name, "the backend's name is " + std::string((*backend)->name()));
    scenario(rank);
    return rank.outcome();
  } catch (const std::exception& error) {
    return failed(std::string("exception: ") + error.what());
  }
}

std::vector<Outcome> run_threads(int size, const Scenario& scenario) {
  const auto group = subject().make(size);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] { outcomes[static_cast<std::size_t>(i)] = run_rank(*group, i, size, scenario); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// Encodes an outcome as bytes: the digest, then the failures, each ended by a zero byte.
std::string encode(const Outcome& outcome) {
  std::string text(reinterpret_cast<const char*>(&outcome.digest), sizeof(outcome.digest));
  for (const std::string& failure : outcome.failures) text.append(failure).push_back('\0');
  return text;
}

Outcome decode(const std::string& text) {
  Outcome outcome;
  if (text.size() < sizeof(outcome.digest)) return failed("the child ended without an outcome");
  text.copy(reinterpret_cast<char*>(&outcome.digest), sizeof(outcome.digest));
  for (std::size_t at = sizeof(outcome.digest); at < text.size();) {
    const std::size_t end = text.find('\0', at);
    if (end == std::string::npos) return failed("the child's outcome is cut short");
    outcome.failures.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return outcome;
}

// For a launcher's ranks: this process runs as one of them.
std::vector<Outcome> run_launched(int size, const Scenario& scenario) {
  const auto group = subject().make(size);
  const Outcome mine = run_rank(*group, subject().launched_as, size, scenario);
  std::vector<Outcome> outcomes;
  for (const std::string& text : subject().gather(encode(mine))) outcomes.push_back(decode(text));
  return outcomes;
}

void write_outcome(int fd, const Outcome& outcome) {
  const std::string text = encode(outcome);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + at, text.size() - at);
    if (wrote <= 0) return;
    at += static_cast<std::size_t>(wrote);
  }
}

Outcome read_outcome(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return decode(text);
}

std::vector<Outcome> run_processes(int size, const Scenario& scenario) {
  const auto group = subject().forked(size);
  std::vector<Fd> pipes;
  std::vector<pid_t> children;
  for (int i = 0; i < size; ++i) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(ends[0]);
      write_outcome(ends[1], run_rank(*group, i, size, scenario));
      ::_exit(0);  // the fixture belongs to the parent
    }
    ::close(ends[1]);
    pipes.emplace_back(ends[0]);
    children.push_back(child);
  }
  std::vector<Outcome> outcomes;
  for (const Fd& pipe : pipes) outcomes.push_back(read_outcome(pipe.get()));
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return outcomes;
}

}  // namespace

Rank::Rank(int index_in, int size_in, backend::Backend& backend, net::WaitSet* wait_set)
    : index(index_in),
      size(size_in),
      backend_(backend),
      wait_set_(wait_set),
      deadline_(deadline_after(kDeadlineSeconds)) {}

std::uint64_t Rank::start(const backend::Operation& operation) {
  const std::uint64_t token = next_token_++;
  backend::Operation mine = operation;
  mine.alone = in_flight_ == 0;
  const Status status = backend_.start(mine, token);
  if (!status.ok()) {
    fail("start: " + status.message());
    return 0;
  }
  ++in_flight_;
  return token;
}

bool Rank::look() {
  const bool moved = backend_.progress();
  std::vector<backend::Completed> done;
  backend_.completed(done);
  for (backend::Completed& one : done) {
    const bool known = one.token > 0 && one.token < next_token_;
    expect(known && in_flight_ > 0, "an unknown token was completed");
    expect(finished_.emplace(one.token, std::move(one.status)).second, "a token was completed twice");
    if (in_flight_ > 0) --in_flight_;
  }
  return moved || !done.empty();
}

std::map<std::uint64_t, Status> Rank::finish() {
  while (in_flight_ > 0) {
    if (Clock::now() > deadline_) {
      fail(std::to_string(in_flight_) + " operations did not complete");
      break;
    }
    if (look()) continue;
    if (must_look()) {
      std::this_thread::yield();
      continue;
    }
    const auto polled = wait_set_->poll(deadline_, [this] { return look(); });
    if (!polled.ok() && polled.status().code() != Errc::kInterrupted) {
      fail("poll: " + polled.status().message());
      break;
    }
  }
  return std::exchange(finished_, {});
}

void Rank::hear() {
  if (wait_set_ != nullptr) expect(wait_set_->poll(Clock::now()).ok(), "poll");
}

bool Rank::must_look() const {
  return wait_set_ == nullptr || (in_flight_ > 0 && backend_.capabilities().moved_by == backend::MovedBy::kCalls);
}

bool Rank::look_until(const std::function<bool()>& done) {
  while (!done()) {
    if (Clock::now() > deadline_) return false;
    if (look() || done()) continue;
    if (must_look()) {
      std::this_thread::yield();
    } else if (const auto polled = wait_set_->poll(deadline_, [this] { return look(); }); !polled.ok()) {
      fail("poll: " + polled.status().message());
      return false;
    }
  }
  return true;
}

void Rank::run(const backend::Operation& operation, const std::string& what) {
  const std::uint64_t token = start(operation);
  if (token == 0) return;
  const auto statuses = finish();
  const auto found = statuses.find(token);
  if (!expect(found != statuses.end(), what + ": not completed")) return;
  if (!found->second.ok()) return fail(what + ": " + found->second.message());
  record_success(operation.kind, operation.dtype);
}

void Rank::fail(const std::string& text) {
  if (outcome_.failures.size() < kMaxFailures) {
    outcome_.failures.push_back("rank " + std::to_string(index) + " of " + std::to_string(size) + ": " + text);
  }
}

bool Rank::expect(bool holds, const std::string& text) {
  if (!holds) fail(text);
  return holds;
}

void Rank::digest(std::span<const std::byte> bytes) {
  const auto mix = [this](std::uint64_t word) {  // FNV-1a of words: sanitized reads cost as much for a byte
    outcome_.digest = (outcome_.digest ^ word) * 0x100000001b3ULL + 0x9e3779b9ULL;
  };
  for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    mix(word);
  }
  for (const std::byte byte : bytes) mix(static_cast<std::uint64_t>(byte));
}

std::vector<Outcome> run_ranks(RanksAs how, int size, const Scenario& scenario) {
  if (subject().launched_as >= 0) return run_launched(size, scenario);
  return how == RanksAs::kThreads ? run_threads(size, scenario) : run_processes(size, scenario);
}

std::uint64_t expect_success(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    for (const std::string& failure : outcome.failures) FAIL_CHECK(failure);
    CHECK(outcome.digest == outcomes.front().digest);
  }
  return outcomes.front().digest;
}

std::vector<int> group_sizes() {
  const Environment environment = process_environment();
  const auto asked = environment.find("TEST_GROUP_SIZES");
  if (asked == environment.end()) return subject().sizes;
  std::istringstream words(asked->second);
  const std::set<int> wanted{std::istream_iterator<int>(words), {}};
  std::vector<int> sizes;
  std::ranges::copy_if(subject().sizes, std::back_inserter(sizes), [&](int size) { return wanted.contains(size); });
  return sizes.empty() ? subject().sizes : sizes;
}

void for_all_sizes(const Scenario& scenario) {
  for (const int size : group_sizes()) expect_success(run_ranks(RanksAs::kThreads, size, scenario));
}

}  // namespace distrun::test
