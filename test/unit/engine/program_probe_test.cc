// The probe asks a program where it is, and no thread waits for the answer.
#include "runtime/engine/monitoring/program_probe.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace distrun::engine {
namespace {

using View = net::ProgramState::View;
using std::chrono::seconds;

std::future<net::ProgramState> asked(ProgramProbe& probe, net::ProgramState known = {}) {
  auto promise = std::make_shared<std::promise<net::ProgramState>>();
  auto future = promise->get_future();
  probe.ask(std::move(known), [promise](net::ProgramState state) { promise->set_value(std::move(state)); });
  return future;
}

TEST_CASE("without a front end the engine's own knowledge is the answer") {
  ProgramProbe probe;
  const auto state = asked(probe, {.wait = net::MainWait::kForever, .operation = "barrier 'b'"}).get();
  CHECK(state.view == View::kNone);
  CHECK(state.wait == net::MainWait::kForever);
  CHECK(state.operation == "barrier 'b'");
}

TEST_CASE("a front end adds what it sees") {
  ProgramProbe probe;
  probe.describe_by([](net::ProgramState& state) {
    state.wait = net::MainWait::kLimited;
    state.exception = "ValueError: bad";
    state.threads = {{.name = "", .frames = {{.place = {.file = "train.py", .line = 3}, .function = "step"}}}};
  });
  const auto state = asked(probe, {.wait = net::MainWait::kForever, .operation = "x", .waited = 2}).get();
  CHECK(state.view == View::kSeen);
  CHECK(state.wait == net::MainWait::kLimited);
  CHECK(state.exception == "ValueError: bad");
  CHECK(state.threads.at(0).frames.at(0).function == "step");
  CHECK(state.operation == "x");
}

TEST_CASE("a front end that does not answer is said to be busy, and is asked once") {
  std::atomic<bool> go{false};
  std::atomic<int> calls{0};
  // The front end's thread outlives the probe. Everything else that it uses must outlive the thread.
  auto ended = std::make_shared<std::promise<void>>();
  const auto begun = std::chrono::steady_clock::now();
  {
    ProgramProbe probe;
    probe.describe_by([&go, &calls, ended](net::ProgramState&) {
      ++calls;
      while (!go) std::this_thread::yield();
      ended->set_value();
    });
    auto first = asked(probe);
    CHECK(first.get().view == View::kBusy);
    CHECK(asked(probe).get().view == View::kBusy);
    CHECK(calls == 1);
  }
  CHECK(std::chrono::steady_clock::now() - begun < seconds(10));
  go = true;
  ended->get_future().wait();
}

TEST_CASE("the probe waits for its answers before it goes") {
  std::atomic<int> answers{0};
  {
    ProgramProbe probe;
    for (int i = 0; i < 12; ++i) probe.ask({}, [&](const net::ProgramState&) { ++answers; });
  }
  CHECK(answers == 12);
}

}  // namespace
}  // namespace distrun::engine
