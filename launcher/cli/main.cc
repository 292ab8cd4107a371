// The distrun command: selects the subcommand.
#include <fcntl.h>
#include <unistd.h>

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

int run(int argc, char** argv) {
  namespace launcher = distrun::launcher;
  const std::string_view first = argc > 1 ? argv[1] : "";
  // Comes first, so that an agent does no work that it does not need.
  if (first == "agent" && argc == 2) return launcher::agent_main(false);
  if (first == "agent" && argc == 3 && std::string_view(argv[2]) == "--guard") return launcher::agent_main(true);
  if (first == "agent" && argc == 3 && std::string_view(argv[2]) == "--join") return launcher::join_main();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (first == "agent" && argc > 2 && arguments[1] == "--mpi") {
    return launcher::mpi_wrapper_main({arguments.begin() + 2, arguments.end()}, distrun::process_environment());
  }
  if (first == "agent" && argc > 2 && arguments[1] == "--mpi-guard") {
    return launcher::mpi_guard_main({arguments.begin() + 2, arguments.end()}, distrun::process_environment());
  }
  if (first == "agent") {
    return launcher::dial_main({arguments.begin() + 1, arguments.end()}, distrun::process_environment());
  }
  const bool check = first == "check";
  if (check) arguments.erase(arguments.begin());
  if (check && !launcher::checks_hosts(arguments, distrun::process_environment())) {
    return launcher::check_main(arguments, distrun::process_environment());
  }
  const launcher::ParseOutcome outcome =
      check ? launcher::host_check_job(arguments) : launcher::parse_arguments(arguments);
  if (outcome.run) return launcher::run_command(outcome.options, distrun::process_environment(), argv[0]);
  std::fputs(outcome.text.c_str(), outcome.exit_code == 0 ? stdout : stderr);
  return outcome.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "distrun: internal error: %s; please report it\n", error.what());
    return distrun::launcher::exit_code::kInternal;
  }
}
