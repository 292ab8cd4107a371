// Which Python runs a script, where PATH and variables name several.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "launcher/cli/arguments.h"
#include "launcher/cli/program.h"
#include "test/support/text.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

// A folder with several Pythons.
class Pythons {
 public:
  Pythons() {
    for (const char* file : {"venv/bin/python", "conda/bin/python", "module/bin/python", "bin/python", "bin/distrun"}) {
      tree_.write(file, "");
      std::filesystem::permissions(root + file, std::filesystem::perms::owner_all);
    }
    tree_.write("broken/bin/python", "");  // not executable
    std::filesystem::create_directories(root + "folder/python");
    std::filesystem::create_directories(root + "old/bin");
    std::filesystem::create_symlink("/no/python", root + "old/bin/python");
  }
  // `path` comes before the folder of distrun.
  [[nodiscard]] Command choose(Environment environment, const std::string& path,
                               const std::string& as = "distrun") const {
    environment["PATH"] = path + ":" + root + "bin";
    return resolve_command(parse_arguments({"train.py"}).options, environment, as);
  }

 private:
  const test::Sysroot tree_;

 public:
  const std::string root = tree_.path();
  const std::string venv = root + "venv";
  const std::string conda = root + "conda";
  const std::string module = root + "module/bin";
};

TEST_CASE("the environment that was activated last has the Python, without a word") {
  const Pythons on;
  const Environment both = {{"VIRTUAL_ENV", on.venv}, {"CONDA_PREFIX", on.conda}, {"CONDA_DEFAULT_ENV", "x"}};
  Command command = on.choose(both, on.conda + "/bin:" + on.venv + "/bin");
  CHECK(command.words.front() == on.conda + "/bin/python");
  CHECK(command.note.empty());
  command = on.choose(both, on.venv + "/bin:" + on.conda + "/bin");
  CHECK(command.words.front() == on.venv + "/bin/python");
  CHECK(command.note.empty());
  // A folder named python is no program, neither here nor in a shell.
  CHECK(on.choose({{"VIRTUAL_ENV", on.venv}}, on.root + "folder:" + on.venv + "/bin").note.empty());
  // "base" is active in many accounts that use something else.
  CHECK(on.choose({{"CONDA_PREFIX", on.conda}, {"CONDA_DEFAULT_ENV", "base"}}, on.module).note.empty());
}

TEST_CASE("where PATH and a variable name different Pythons, PATH counts, and one line says so") {
  const Pythons on;
  for (const std::string& path : {on.module + ":" + on.venv + "/bin", on.module}) {
    const Command command = on.choose({{"VIRTUAL_ENV", on.venv}}, path);
    CHECK(command.words.front() == on.module + "/python");
    CHECK(command.note == "ranks run " + on.module + "/python, the first Python in PATH. VIRTUAL_ENV=" + on.venv +
                              " is not first in PATH");
  }
  const Command command = on.choose({{"CONDA_PREFIX", on.conda}}, on.module);
  CHECK(command.words.front() == on.module + "/python");
  CHECK(distrun::test::has(command.note, "CONDA_PREFIX=" + on.conda + " is not first in PATH"));
  // The user's own Python needs no line.
  const Environment typed = {{"VIRTUAL_ENV", on.venv}, {"PATH", on.module}};
  CHECK(resolve_command(parse_arguments({"python", "train.py"}).options, typed, "distrun").note.empty());
  CHECK(resolve_command(parse_arguments({"-m", "pkg"}).options, typed, "distrun").words.front() ==
        on.module + "/python");
}

TEST_CASE("a Python that cannot be used is named, with the reason") {
  const Pythons on;
  Command command = on.choose({{"VIRTUAL_ENV", on.root + "gone"}}, on.module);
  CHECK(command.words.front() == on.module + "/python");
  CHECK(distrun::test::has(command.note, "VIRTUAL_ENV=" + on.root + "gone cannot be used: " + on.root +
                                             "gone/bin/python: No such file or directory"));
  command = on.choose({{"VIRTUAL_ENV", on.root + "broken"}}, on.root + "broken/bin:" + on.module);
  CHECK(command.words.front() == on.module + "/python");
  CHECK(distrun::test::has(command.note, on.root + "broken/bin/python: Permission denied"));
  command = resolve_command(parse_arguments({"train.py"}).options, {{"PATH", on.module}}, on.root + "old/bin/distrun");
  CHECK(distrun::test::has(command.note, "The one beside the distrun command cannot be used: " + on.root +
                                             "old/bin/python: No such file or directory"));
}

TEST_CASE("distrun with its path means the Python beside it") {
  const Pythons on;
  const Environment venv = {{"VIRTUAL_ENV", on.venv}};
  const Command command = on.choose(venv, on.module, on.root + "bin/distrun");
  CHECK(command.words.front() == on.root + "bin/python");
  CHECK(distrun::test::has(command.note, "the Python beside the distrun command. VIRTUAL_ENV="));
  CHECK(on.choose(venv, on.module, on.venv + "/bin/distrun").note.empty());
  CHECK(on.choose(venv, on.venv + "/bin", on.root + "bin/distrun").words.front() == on.venv + "/bin/python");
}

}  // namespace
}  // namespace distrun::launcher
