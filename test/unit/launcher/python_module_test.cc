#include "launcher/agent/python_module.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("the module of a Python's command line") {
  const auto module_of = [](const Words& command) {
    const auto question = module_question(command);
    return question ? question->module : "";
  };
  CHECK(module_of({"python", "-m", "package.train", "--epochs", "3"}) == "package.train");
  CHECK(module_of({"/venv/bin/python3.11", "-u", "-W", "ignore", "-X", "dev", "-m", "train"}) == "train");
  CHECK(module_of({"python3", "train.py", "-m", "x"}).empty());
  CHECK(module_of({"python3", "-c", "pass", "-m", "x"}).empty());
  CHECK(module_of({"python3", "-", "-m", "x"}).empty());
  CHECK(module_of({"python3", "-m"}).empty());
  CHECK(module_of({"python3", "-W"}).empty());
  CHECK(module_of({"sh", "-m", "x"}).empty());
}

TEST_CASE("the question keeps the interpreter's options and gives no argument of the program") {
  const auto question = module_question({"python", "-I", "-X", "dev", "-m", "train", "--epochs"});
  REQUIRE(question);
  REQUIRE(question->argv.size() == 7);
  CHECK(Words(question->argv.begin(), question->argv.begin() + 5) == Words{"python", "-I", "-X", "dev", "-c"});
  CHECK(question->argv.back() == "train");
}

}  // namespace
}  // namespace distrun::launcher
