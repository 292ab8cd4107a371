// The distrun command: selects the subcommand.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/agent.h"
#include "launcher/agent/dial.h"
#include "launcher/agent/join.h"
#include "launcher/agent/mpi_wrapper.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/check.h"
#include "launcher/cli/help/help.h"
#include "launcher/cli/run.h"
#include "launcher/exit_codes.h"
#include "launcher/spawn/mpi_guard.h"

namespace {

// A daemon or `<&-` may start distrun with descriptor 0, 1 or 2 closed. Our own descriptors would then get those
// numbers, and a rank would read from them and write into them.
void occupy_standard_descriptors() {
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd < 2) fd = ::open("/dev/null", O_RDWR);
  if (fd > 2) ::close(fd);
}

int print(const std::string& text, int exit_code) {
  std::fputs(text.c_str(), exit_code == 0 ? stdout : stderr);
  return exit_code;
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

int run(int argc, char** argv) {
  namespace launcher = distrun::launcher;
  const std::string_view first = argc > 1 ? argv[1] : "";
  // Comes first, so that an agent does no work that it does not need.
  if (first == "agent" && argc == 2) return launcher::agent_main(false);
  if (first == "agent" && argc == 3 && std::string_view(argv[2]) == "--guard") return launcher::agent_main(true);
  if (first == "agent" && argc == 3 && std::string_view(argv[2]) == "--join") return launcher::join_main();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const distrun::Environment environment = distrun::process_environment();
  if (first == "agent" && argc > 2 && arguments[1] == "--mpi") {
    return launcher::mpi_wrapper_main({arguments.begin() + 2, arguments.end()}, environment);
  }
  if (first == "agent" && argc > 2 && arguments[1] == "--mpi-guard") {
    return launcher::mpi_guard_main({arguments.begin() + 2, arguments.end()}, environment);
  }
  if (first == "agent") {
    if (asks_for_help(arguments)) return print(launcher::help_text(launcher::HelpOf::kAgent), 0);
    return launcher::dial_main({arguments.begin() + 1, arguments.end()}, environment);
  }
  if (first == "help") {
    const launcher::HelpAnswer answer = launcher::help_about({arguments.begin() + 1, arguments.end()});
    return print(answer.text, answer.exit_code);
  }
  const bool check = first == "check";
  if (check && asks_for_help(arguments)) return print(launcher::help_text(launcher::HelpOf::kCheck), 0);
  if (check) arguments.erase(arguments.begin());
  if (check && !launcher::checks_hosts(arguments, environment)) {
    return launcher::check_main(arguments, environment);
  }
  const launcher::ParseOutcome outcome =
      check ? launcher::host_check_job(arguments, environment) : launcher::parse_arguments(arguments, environment);
  if (outcome.run) return launcher::run_command(outcome.options, environment, argv[0]);
  return print(outcome.text, outcome.exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "distrun: internal error: %s. Please report this bug\n", error.what());
    return distrun::launcher::exit_code::kInternal;
  }
}
