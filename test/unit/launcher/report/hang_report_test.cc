// How the screen shows where the ranks are.
#include "launcher/report/hang_report.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using View = net::ProgramState::View;

RankView view_of(int rank, int line, bool missed = false) {
  net::ProgramState state{.view = View::kSeen, .operation = "allreduce 'x'", .waited = 12.34};
  state.threads = {{.name = "",
                    .frames = {{.place = {.file = "train.py", .line = line}, .function = "step"},
                               {.place = {.file = "train.py", .line = 90}, .function = "main"}}}};
  return {.rank = rank, .host = "h" + std::to_string(rank), .missed = missed, .state = state, .note = {}};
}

auto lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_CASE("equal ranks are one, and who is missed comes first") {
  CHECK(stacks_text({view_of(0, 7), view_of(1, 7), view_of(2, 33, true), view_of(3, 7)}) ==
        "where the ranks are (innermost line first):\n"
        "rank 2 (h2), which others wait for, has allreduce 'x' in flight for 12.3 s\n"
        "  train.py:33 in step\n"
        "  train.py:90 in main\n"
        "ranks 0-1, 3 have allreduce 'x' in flight for 12.3 s\n"
        "  train.py:7 in step\n"
        "  train.py:90 in main\n");
}

TEST_CASE("no report has more than 15 lines, nor a line of more than 100 columns") {
  for (int ranks : {1, 2, 3, 5, 6, 40}) {
    std::vector<RankView> views;
    for (int rank = 0; rank < ranks; ++rank) {
      RankView view = view_of(rank, rank);
      view.state->exception = "ValueError: " + std::string(300, 'x') + std::to_string(rank);
      view.state->raised_at = {.file = "/a/" + std::string(200, 'd') + "/train.py", .line = 3};
      auto& frames = view.state->threads[0].frames;
      for (int i = 0; i < 30; ++i) {
        frames.push_back({.place = {.file = std::string(200, 'p') + "/f.py", .line = i}, .function = "f"});
      }
      view.state->threads.push_back({.name = "worker", .frames = frames});
      views.push_back(view);
    }
    const std::string text = stacks_text(views);
    CHECK(static_cast<std::size_t>(lines_of(text)) <= kMostStackLines);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      CHECK(end - at <= 100);
      at = end + 1;
    }
    if (ranks > 4) CHECK(text.find("and " + std::to_string(ranks - 4) + " rank") != std::string::npos);
  }
}

TEST_CASE("the line of the program is shown, however many frames of a library wait above it") {
  RankView deep = view_of(0, 14);
  auto& frames = deep.state->threads[0].frames;
  const std::string folder = "/v/lib/python3.11/site-packages/tensorflow/";
  for (int i = 20; i > 0; --i) {
    frames.insert(frames.begin(),
                  {.place = {.file = folder + "f" + std::to_string(i) + ".py", .line = i}, .function = "f"});
  }
  const std::string alone = stacks_text({deep});
  CHECK(alone.find("tensorflow/f1.py:1 in f\n") != std::string::npos);
  CHECK(alone.find("  ... train.py:14 in step\n  train.py:90 in main\n") != std::string::npos);
  std::vector<RankView> views;
  for (int rank = 0; rank < 4; ++rank) {
    views.push_back(deep);
    views.back().rank = rank;
    views.back().state->operation += std::to_string(rank);
  }
  const std::string many = stacks_text(views);
  CHECK(lines_of(many) <= static_cast<long>(kMostStackLines));
  CHECK(many.find("  tensorflow/f1.py:1 in f\n  ... train.py:14 in step\n") != std::string::npos);
  // Standard libraries and frozen modules are no part of the program either.
  frames = {{.place = {.file = "<frozen runpy>", .line = 1}, .function = "g"},
            {.place = {.file = "/usr/lib/python3.11/threading.py", .line = 2}, .function = "wait"}};
  for (int i = 0; i < 20; ++i) frames.push_back(frames[1]);
  frames.push_back({.place = {.file = "<string>", .line = 3}, .function = "<module>"});
  CHECK(stacks_text({deep}).find("  ... <string>:3 in <module>\n") != std::string::npos);
}

TEST_CASE("the end of a long line stays: where the code is, how long a wait lasts, the kernel's function") {
  RankView deep = view_of(3, 7, true);
  deep.state->operation = "allreduce 'gradients." + std::string(80, 'l') + ".bias'";
  deep.state->exception = "ValueError: " + std::string(120, 'x') + " at row 17";
  deep.state->raised_at = {.file = "/home/u/" + std::string(60, 'd') + "/data.py", .line = 412};
  auto& frames = deep.state->threads[0].frames;
  frames[0].place.file = "/home/u/" + std::string(60, 'p') + "/train.py";
  frames[0].function = std::string(90, 'O') + ".<locals>.inner";
  const std::string text = stacks_text({deep});
  CHECK(text.find(".bias' in flight for 12.3 s\n") != std::string::npos);
  CHECK(text.find(" at row 17 (") != std::string::npos);
  CHECK(text.find("/data.py:412)\n") != std::string::npos);
  CHECK(text.find("/train.py:7 in ...") != std::string::npos);
  CHECK(text.find("OO.<locals>.inner\n") != std::string::npos);
  RankView busy = deep;
  busy.state->view = View::kBusy;
  busy.state->kernel = "folio_wait_bit_common";
  CHECK(stacks_text({busy}).find("its main thread is in the kernel's folio_wait_bit_common\n") != std::string::npos);
}

TEST_CASE("what a program names cannot reach the terminal as a command") {
  RankView odd = view_of(0, 1, true);
  const std::string bad = "a\x1b[2Jb\rc\nd";
  odd.state->operation = bad;
  odd.state->exception = bad;
  odd.state->raised_at = {.file = bad, .line = 1};
  odd.state->kernel = bad;
  odd.state->threads[0].frames[0] = {.place = {.file = bad, .line = 2}, .function = bad};
  odd.state->threads.push_back({.name = bad, .frames = odd.state->threads[0].frames});
  RankView busy = odd;
  busy.state->view = View::kBusy;
  for (const std::string& text :
       {stacks_text({odd}), stacks_text({busy}), exceptions_text({.waits = {}, .views = {odd}})}) {
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find('\r') == std::string::npos);
    CHECK(text.find("\\x1b[2J") != std::string::npos);
    CHECK(text.find("\nd") == std::string::npos);
  }
}

TEST_CASE("a rank that cannot tell is said to be so") {
  RankView stopped{.rank = 4, .host = "h", .missed = true, .state = std::nullopt, .note = "stopped (T)"};
  CHECK(stacks_text({stopped}).find("rank 4 (h), which others wait for, is stopped (T)\n") != std::string::npos);
  RankView busy = view_of(1, 1);
  busy.state->view = View::kBusy;
  busy.state->threads.clear();
  CHECK(stacks_text({busy}).find("C code holds the interpreter's lock") != std::string::npos);
  RankView native = busy;
  native.state->view = View::kNone;
  native.state->kernel = "futex_do_wait";
  CHECK(stacks_text({native}).find("it has no Python; its main thread is in the kernel's futex_do_wait") !=
        std::string::npos);
}

TEST_CASE("an exception that waits is told with its place, on the screen and at the end") {
  RankView failed = view_of(1, 5);
  failed.state->exception = "ValueError: bad";
  failed.state->raised_at = {.file = "train.py", .line = 3};
  CHECK(stacks_text({view_of(0, 7, true), failed}).find("  handling ValueError: bad (train.py:3)\n") !=
        std::string::npos);
  CHECK(exceptions_text({.waits = {}, .views = {view_of(0, 7), failed}}) ==
        "rank 1 (h1) waited in allreduce 'x' while it was handling ValueError: bad (train.py:3)\n");
  CHECK(exceptions_text({.waits = {}, .views = {view_of(0, 7)}}).empty());
  CHECK(exceptions_text({.waits = {}, .views = {failed}}, 1).empty());
  CHECK(exception_with_place("ValueError: bad", {.file = "/a/b/train.py", .line = 3}) ==
        "ValueError: bad (train.py:3)");
  CHECK(exception_with_place("ValueError: bad", {}) == "ValueError: bad");
}

}  // namespace
}  // namespace distrun::launcher
