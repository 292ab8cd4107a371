// The exception with which the output of a Python program ends.
#include "launcher/report/lines/last_exception.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace distrun::launcher {
namespace {

using std::chrono::seconds;

constexpr TimePoint kRaisedAt{std::chrono::hours(1)};

std::optional<RaisedException> after(const std::vector<std::string>& lines) {
  LastException last;
  for (const std::string& line : lines) last.add(line, kRaisedAt);
  return last.get();
}

TEST_CASE("the last line of a traceback is the exception, and the frame before it the place") {
  const auto found = after(
      {"loading", "Traceback (most recent call last):", "  File \"/a/train.py\", line 9, in <module>", "    load()",
       "    ^^^^^^", "  File \"/a/data.py\", line 33, in load", "    raise ValueError(\"bad\")", "ValueError: bad"});
  REQUIRE(found);
  CHECK(found->text == "ValueError: bad");
  CHECK(found->place.file == "/a/data.py");
  CHECK(found->place.line == 33);
}

TEST_CASE("the place is the innermost frame of the user's program, not of a library that it called") {
  const auto place = [](const std::vector<std::string>& files) {
    std::vector<std::string> lines = {"Traceback (most recent call last):"};
    int number = 0;
    for (const std::string& file : files) {
      lines.push_back("  File \"" + file + "\", line " + std::to_string(++number) + ", in f");
    }
    lines.emplace_back("ValueError: bad");
    const auto found = after(lines);
    REQUIRE(found);
    return found->place.file + ":" + std::to_string(found->place.line) + (found->in_library ? " library" : "");
  };
  CHECK(place({"/a/train.py", "/a/data.py", "/usr/lib/python3.11/json/decoder.py"}) == "/a/data.py:2 library");
  for (const char* library :
       {"/v/lib/python3.11/site-packages/keras/a.py", "/usr/lib/python3/dist-packages/a.py",
        "/usr/lib64/python3.9/a.py", "/opt/x/site-packages/distrun/_session.py", "<frozen importlib._bootstrap>",
        "<__array_function__ internals>", "/tmp/__autograph_generated_file3x.py"}) {
    CAPTURE(library);
    CHECK(place({"/a/train.py", library}) == "/a/train.py:1 library");
    CHECK(place({library, library}) == std::string(library) + ":2 library");
    CHECK(place({"/a/train.py", library, "/a/model.py"}) == "/a/model.py:3");
  }
  CHECK(place({"/home/u/lib/python/train.py"}) == "/home/u/lib/python/train.py:1");
  CHECK(place({"/home/u/distrun/train.py", "/home/u/site/x.py"}) == "/home/u/site/x.py:2");
  CHECK(place({"<string>", "/usr/lib/python3.11/json/decoder.py"}) == "<string>:1 library");
  CHECK(place({"/a/train.py", "<string>"}) == "/a/train.py:1");  // a library made it: __init__ of a dataclass
}

TEST_CASE("of chained exceptions the last one counts, and names have no modules") {
  const auto found = after({"Traceback (most recent call last):", "  File \"a.py\", line 1, in f", "KeyError: 'y'", "",
                            "During handling of the above exception, another exception occurred:", "",
                            "Traceback (most recent call last):", "  File \"a.py\", line 4, in f",
                            "torch.cuda.OutOfMemoryError: all"});
  REQUIRE(found);
  CHECK(found->text == "OutOfMemoryError: all");
  CHECK(found->place.line == 4);
  CHECK(after({"Traceback (most recent call last):", "  File \"a.py\", line 1, in f", "bdb.BdbQuit"})->text ==
        "BdbQuit");
}

TEST_CASE("an error of syntax has no heading, and torch has a tag before each line") {
  CHECK(after({"  File \"a.py\", line 2", "    x = = 1", "        ^", "SyntaxError: invalid syntax"})->place.line == 2);
  const auto tagged = after({"[rank3]: Traceback (most recent call last):", "[rank3]:   File \"a.py\", line 5, in f",
                             "[rank3]: RuntimeError: NCCL"});
  REQUIRE(tagged);
  CHECK(tagged->text == "RuntimeError: NCCL");
  CHECK(tagged->place.line == 5);
}

TEST_CASE("an error of TensorFlow says what happened after the place in its graph") {
  const std::vector<std::string> graph = {
      "Traceback (most recent call last):",
      "  File \"/a/train.py\", line 14, in <module>",
      "    run(x)",
      "tensorflow.python.framework.errors_impl.UnknownError: Graph execution error:",
      "",
      "Detected at node DistrunAllreduce defined at (most recent call last):",
      "  File \"/a/ops.py\", line 8, in <module>",
      "",
      "<stack traces unavailable>",
      "2 root error(s) found.",
      "rank 1 on h was lost: killed by signal 9 (SIGKILL). The job ends",
      "\t [[{{node DistrunAllreduce}}]] [Op:__inference_step_10]"};
  const auto found = after(graph);
  REQUIRE(found);
  CHECK(found->text == "UnknownError: rank 1 on h was lost: killed by signal 9 (SIGKILL). The job ends");
  CHECK(found->place.file == "/a/train.py");
  CHECK(after({graph.begin(), graph.end() - 2})->text == "UnknownError: Graph execution error:");
}

TEST_CASE("an error in a function of TensorFlow says what happened after the lines of the program") {
  CHECK(after({"Traceback (most recent call last):", "  File \"a.py\", line 7, in <module>", "    f(x)",
               "TypeError: in user code:", "", "    File \"/a/a.py\", line 6, in f  *", "        def f(x): return g(x)",
               "    File \"/a/ops.py\", line 76, in allreduce", "        return run(x)", "", "    TypeError: no uint16",
               ""})
            ->text == "TypeError: no uint16");
}

TEST_CASE("if the first line of an exception is a heading, the next line belongs to it") {
  std::vector<std::string> lines = {"Traceback (most recent call last):", "  File \"a.py\", line 1, in f",
                                    "RuntimeError: Error(s) in loading state_dict for Net:",
                                    "\tMissing key(s) in state_dict: \"b\".", "\tUnexpected key(s): \"c\"."};
  CHECK(after(lines)->text ==
        "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: \"b\".");
  lines.resize(3);
  CHECK(after(lines)->text == "RuntimeError: Error(s) in loading state_dict for Net:");
  lines.insert(lines.end(), {"", "Traceback (most recent call last):", "  File \"a.py\", line 4, in g", "KeyError: 1"});
  CHECK(after(lines)->text == "KeyError: 1");
}

TEST_CASE("a library's log may follow within seconds, and an error that a program has survived is none") {
  LastException last;
  for (const char* line : {"Traceback (most recent call last):", "  File \"a.py\", line 1, in f", "OSError: retry"}) {
    last.add(line, kRaisedAt);
  }
  last.add("wandb: uploading", kRaisedAt + seconds(2));
  CHECK(last.get());
  last.add("epoch 2", kRaisedAt + seconds(60));
  CHECK_FALSE(last.get());
}

TEST_CASE("other texts are no exception") {
  CHECK_FALSE(after({}));
  CHECK_FALSE(after({"ValueError: said by a program", "Error: cannot open file"}));
  CHECK_FALSE(after({"Traceback (most recent call last):", "  File \"a.py\", line 1, in f", "### cut ###"}));
}

TEST_CASE("a prompt without input is known by its exception") {
  CHECK(is_end_of_input("EOFError: EOF when reading a line (a.py:3)"));
  CHECK(is_end_of_input("BdbQuit"));
  CHECK(is_end_of_input("BdbQuit (bdb.py:113)"));
  CHECK_FALSE(is_end_of_input("EOFError: Ran out of input"));
  CHECK_FALSE(is_end_of_input("ValueError: BdbQuit"));
}

}  // namespace
}  // namespace distrun::launcher
