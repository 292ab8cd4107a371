// The texts of --help and of `distrun help`: their width, and that each option has one.
#include "launcher/cli/help/help.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <sstream>

#include "launcher/cli/arguments.h"
#include "test/support/text.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

using distrun::test::has;

constexpr HelpOf kCommands[] = {HelpOf::kDistrun, HelpOf::kCheck, HelpOf::kAgent};

std::string refusal(const std::vector<std::string>& words) {
  const ParseOutcome outcome = parse_arguments(words);
  CHECK_FALSE(outcome.run);
  return outcome.text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void check_width(const std::string& text) {
  CHECK(text.ends_with('\n'));
  for (const std::string& line : lines_of(text)) {
    CAPTURE(line);
    CHECK(line.size() <= kHelpColumns);
    CHECK_FALSE(line.ends_with(' '));
  }
}

std::string help_on(const std::string& word) {
  const HelpAnswer answer = help_about({word});
  CAPTURE(word);
  CHECK(answer.exit_code == 0);
  return answer.text;
}

TEST_CASE("what other launchers call it, and other letters, come with the right name") {
  CHECK(has(refusal({"--nproc", "2", "true"}), "--nproc is not an option of distrun: use -np"));
  CHECK(has(refusal({"--nodes", "2", "true"}), "--nodes is not an option of distrun: leave it out. Name the hosts"));
  CHECK(has(refusal({"--nodes=2", "true"}), "Name the hosts"));
  CHECK(has(refusal({"--TAG", "none", "true"}), "did you mean --tag?"));
  CHECK(has(help_about({"HOSTS"}).text, "did you mean hosts?"));
}

TEST_CASE("a mistyped command of distrun is named, and a program is a program") {
  test::Sysroot tree;
  const Environment environment = {{"PATH", tree.path() + "bin"}};
  const auto text = [&](const std::vector<std::string>& words) { return parse_arguments(words, environment).text; };
  CHECK(has(text({"chek"}),
            "chek is no command of distrun, and no program of this name is in PATH; did you mean check?"));
  CHECK(has(text({"agnet", "--connect", "a:1"}), "did you mean agent?"));
  CHECK(has(text({"hlep"}), "did you mean help?"));
  CHECK(has(text({"CHECK"}), "did you mean check?"));
  CHECK(parse_arguments({"./chek"}, environment).run);
  CHECK(parse_arguments({"-np", "2", "chek"}, environment).run);
  CHECK(parse_arguments({"train"}, environment).run);
  tree.write("bin/chek", "");
  std::filesystem::permissions(tree.path() + "bin/chek", std::filesystem::perms::owner_all);
  CHECK(parse_arguments({"chek"}, environment).run);
}

}  // namespace

TEST_CASE("--help has one line of at most 100 columns for each option") {
  for (const HelpOf command : kCommands) {
    const std::string help = help_text(command);
    check_width(help);
    const std::vector<std::string> lines = lines_of(help);
    for (const OptionText& option : option_texts()) {
      if (!is_of(option, command)) continue;
      CAPTURE(option.names);
      const std::string start = "  " + (option.shown.empty() ? names_of(option).front() : option.shown);
      const auto is_line = [&](const std::string& line) {
        return line.starts_with(start) && line.ends_with(" " + option.brief);
      };
      CHECK(std::count_if(lines.begin(), lines.end(), is_line) == 1);
      CHECK_FALSE(option.brief.ends_with('.'));
      CHECK_FALSE(option.more.empty());
    }
  }
}

TEST_CASE("every topic has a text, and every option a topic") {
  std::set<std::string_view> names;
  for (const HelpTopic& topic : help_topics()) {
    CHECK(names.insert(topic.name).second);
    const std::string text = help_on(std::string(topic.name));
    check_width(text);
    CHECK(text.starts_with(std::string(topic.heading) + "\n\n"));
    CHECK(has(text, "\nMore: docs/"));
    CHECK(has(help_text(HelpOf::kDistrun), std::string(topic.name)));
  }
  for (const OptionText& option : option_texts()) {
    CAPTURE(option.names);
    CHECK(names.contains(option.topic));
  }
  check_width(help_on("options"));
  check_width(help_about({}).text);
}

TEST_CASE("every option of the help is one of distrun") {
  for (const OptionText& option : option_texts()) {
    if (!is_of(option, HelpOf::kDistrun)) continue;
    for (const std::string& name : names_of(option)) {
      CAPTURE(name);
      CHECK_FALSE(has(parse_arguments({name, "1", "program"}).text, "is not an option of distrun"));
    }
  }
}

TEST_CASE("distrun help shows an option by each of its names") {
  const std::string tty = help_on("--tty");
  CHECK(has(tty, "  --tty RANK\n"));
  CHECK(has(tty, "Ctrl-\\ shows where the ranks are, and the job goes on."));
  for (const char* word : {"tty", "--tty=3"}) CHECK(help_on(word) == tty);
  for (const char* word : {"-np", "-n", "--np", "num_proc"})
    CHECK(has(help_on(word), "  -n N, --num-proc N, --np N\n"));
  CHECK(has(help_on("--listen"), "  --listen [ADDRESS:]PORT\n"));
  CHECK(has(help_on("--mpi"), "  --mpi[=hydra|pmix|pmi2]\n"));
  CHECK(has(help_on("--connect"), "  --connect HEAD:PORT\n"));
  CHECK(has(help_on("--timeout"), "with exit code 124"));
  // The long text of a setting tells the other ways to set it.
  const std::string limit = help_on("host_timeout");
  for (const char* part : {"  --host-timeout SECONDS\n", "(default 30s)", "DISTRUN_HOST_TIMEOUT", "from 5s to 3600s"}) {
    CHECK(has(limit, part));
  }
}

TEST_CASE("a name may be a topic, an option or another word for a topic") {
  CHECK(has(help_on("agents"), "  --agents N\n"));
  CHECK(has(help_on("timeline"), "  --timeline FILE\n"));
  CHECK(help_on("gpus") == help_on("placement"));
  CHECK(has(help_on("exit-codes"), "  75 "));
  CHECK(has(help_about({"end", "--tty"}).text,
            "More: docs/reference/end-of-a-job.md in the repository of distrun\n\n  --tty RANK\n"));
}

TEST_CASE("an option of another launcher is answered with what to type instead") {
  for (const char* word : {"--nnodes", "nnodes", "--nnodes=2"}) {
    CAPTURE(word);
    CHECK(has(help_on(word), " is not an option of distrun: leave it out. Type distrun once"));
  }
  CHECK(has(help_on("-mca"), "-mca is not an option of distrun: leave it out."));
  // Spellings of distrun's own options.
  for (const char* word : {"-npernode", "-ppn"}) CHECK(help_on(word) == help_on("--nproc-per-node"));
  for (const char* word : {"-hostfile", "-machinefile", "hostfile"}) CHECK(help_on(word) == help_on("--hostfile"));
  CHECK(help_on("bind-to") == help_on("--bind-to"));
}

TEST_CASE("a name that is not known is answered with the nearest one and all topics") {
  const HelpAnswer near = help_about({"hots"});
  CHECK(near.exit_code == 64);
  CHECK(near.text.starts_with("distrun: help: hots is neither a topic nor an option; did you mean hosts?\n"));
  CHECK(has(help_about({"slrum"}).text, "did you mean slurm?"));
  CHECK(has(help_about({"--hostflie"}).text, "did you mean hostfile?"));
  const HelpAnswer far = help_about({"xyzzyxyzzy"});
  CHECK(far.exit_code == 64);
  CHECK(has(far.text, "xyzzyxyzzy is neither a topic nor an option\n"));
  for (const HelpTopic& topic : help_topics()) CHECK(has(far.text, "\n  " + std::string(topic.name) + " "));
}

}  // namespace distrun::launcher
