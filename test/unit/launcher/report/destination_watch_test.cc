#include "launcher/report/destination_watch.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::seconds;
using Texts = std::vector<std::string>;

constexpr TimePoint kFirstWatch{std::chrono::hours(1)};
constexpr std::size_t kMuch = DestinationWatch::kHighWater + 1;

DestinationWatch of_output() { return {"standard output", "the job ends"}; }

TEST_CASE("a loss and a reader that has gone are told once each") {
  DestinationWatch watch = of_output();
  CHECK(watch.faults({}, {}).empty());
  const DestinationState bad{.closed = true, .reader_gone = true, .loss = "the disk is full"};
  CHECK(watch.faults(bad, {}) ==
        Texts{"the disk is full",
              "the reader of standard output has gone; the job ends (--output-dir keeps output in files)"});
  CHECK(watch.faults(bad, {}).empty());
  // When the ranks have ended, the reader is not needed any more.
  DestinationWatch late = of_output();
  CHECK(late.faults({.closed = true, .reader_gone = true}, {.finished = true}).empty());
}

TEST_CASE("a reader that takes nothing for 5 s is told of, and that it reads again") {
  DestinationWatch watch = of_output();
  DestinationState state{.backlog = kMuch, .taken = 1};
  CHECK(watch.slow(state, {}, kFirstWatch).text.empty());  // it has just taken some
  CHECK(watch.deadline({}) == kFirstWatch + seconds(5));
  CHECK(watch.slow(state, {}, kFirstWatch + seconds(4)).text.empty());
  CHECK(watch.slow(state, {}, kFirstWatch + seconds(5)).text ==
        "nobody has read standard output for 5 s; ranks that write there wait until somebody does");
  CHECK_FALSE(watch.deadline({}));
  CHECK(watch.slow(state, {}, kFirstWatch + seconds(50)).text.empty());
  state.taken = 2;
  CHECK(watch.slow(state, {}, kFirstWatch + seconds(51)).text == "standard output is read again; ranks go on");
}

TEST_CASE("a small backlog is nobody's fault, until the user wants an end") {
  DestinationWatch watch = of_output();
  const DestinationState state{.backlog = 1};
  watch.slow(state, {}, kFirstWatch);
  CHECK_FALSE(watch.deadline({}));
  const DestinationWatch::Phase ending_soon{.finished = true, .ending_soon = true};
  CHECK(watch.slow(state, ending_soon, kFirstWatch).text.empty());
  CHECK(watch.deadline(ending_soon) == kFirstWatch + seconds(1));
  const auto last = watch.slow(state, ending_soon, kFirstWatch + seconds(1));
  CHECK(last.give_up);
  CHECK(last.text == "nobody reads standard output; what was still to be written there is lost");
  // After that, everything about it has been reported.
  CHECK(watch.faults({.closed = true, .reader_gone = true, .loss = "lost"}, {}).empty());
  CHECK(watch.slow({.closed = true, .backlog = kMuch}, ending_soon, kFirstWatch + seconds(9)).text.empty());
}

TEST_CASE("of a file the disk is suspected, also for a little when ranks have ended") {
  DestinationWatch watch("logs (--output-dir)", "");
  const DestinationState state{.is_file = true, .backlog = 1};
  const DestinationWatch::Phase finished{.finished = true};
  watch.slow(state, finished, kFirstWatch);
  CHECK(watch.slow(state, finished, kFirstWatch + seconds(5)).text ==
        "logs (--output-dir) has taken nothing for 5 s; is its disk reachable? Ranks have ended; distrun waits for "
        "it, or for Ctrl-C");
}

}  // namespace
}  // namespace distrun::launcher
