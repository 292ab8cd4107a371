#include "launcher/agent/preflight/python_module.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Arguments = std::vector<std::string>;

TEST_CASE("the module of a Python's command line") {
  const auto module_of = [](const Arguments& command) {
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
  CHECK(Arguments(question->argv.begin(), question->argv.begin() + 5) == Arguments{"python", "-I", "-X", "dev", "-c"});
  CHECK(question->argv.back() == "train");
}

TEST_CASE("a module of ours is asked for too, and not in the working directory") {
  Arguments command = {"python", "-u"};
  for (const std::string& word : our_module("distrun._tf_server")) command.push_back(word);
  command.emplace_back("--epochs");
  const auto question = module_question(command);
  REQUIRE(question);
  CHECK(question->module == "distrun._tf_server");
  REQUIRE(question->argv.size() == 5);
  CHECK(question->argv[3].starts_with("import sys; sys.path[0] ="));
  const auto of_the_users = module_question({"python", "-m", "train"});
  REQUIRE(of_the_users);
  CHECK(of_the_users->argv[2].find("sys.path[0]") == std::string::npos);
}

}  // namespace
}  // namespace distrun::launcher
