// Runs seeds of the simulation: coordinator_sim --seeds 1-1000 [--ranks N] [--fault F] [--mutant M] [--trace]
#include <charconv>
#include <chrono>
#include <iostream>
#include <string>
#include <string_view>

#include "test/sim/mutants.h"
#include "test/sim/runs.h"

namespace distrun::sim {
namespace {

struct Arguments {
  std::uint64_t first = 1;
  std::uint64_t last = 1000;
  RunWishes wishes;
};

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

bool read_seeds(std::string_view text, Arguments& to) {
  const std::size_t dash = text.find('-');
  if (!read(text.substr(0, dash), to.first)) return false;
  to.last = to.first;
  return dash == std::string_view::npos || read(text.substr(dash + 1), to.last);
}

bool read_option(std::string_view option, std::string_view value, Arguments& to) {
  if (option == "--seeds" || option == "--seed") return read_seeds(value, to);
  if (option == "--ranks") return read(value, to.wishes.scenario.ranks.emplace()) && *to.wishes.scenario.ranks > 0;
  if (option == "--fault") return (to.wishes.scenario.fault = fault_of(value)).has_value();
  if (option == "--mutant") return (to.wishes.mutant = mutant_of(value)).has_value();
  return false;
}

bool read_arguments(int count, char** arguments, Arguments& to) {
  for (int i = 1; i < count; ++i) {
    if (std::string_view(arguments[i]) == "--trace") {
      to.wishes.trace = [](const std::string& line) { std::cout << line << "\n"; };
    } else if (i + 1 >= count || !read_option(arguments[i], arguments[i + 1], to)) {
      return false;
    } else {
      ++i;
    }
  }
  return true;
}

int run(const Arguments& arguments) {
  int failed = 0;
  long events = 0;
  const auto start = std::chrono::system_clock::now();  // the machine's clock, because the steady clock is virtual here
  for (std::uint64_t seed = arguments.first; seed <= arguments.last; ++seed) {
    const RunResult result = run_seed(seed, arguments.wishes);
    events += result.events;
    if (result.ok()) continue;
    ++failed;
    std::cout << result.text() << std::flush;
  }
  const auto took = std::chrono::duration<double>(std::chrono::system_clock::now() - start).count();
  std::cout << arguments.last - arguments.first + 1 << " seeds, " << events << " events, " << took << " s: " << failed
            << " failed\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace distrun::sim

int main(int count, char** arguments) {
  distrun::sim::Arguments to;
  if (!distrun::sim::read_arguments(count, arguments, to)) {
    std::cerr << "usage: coordinator_sim [--seeds FIRST-LAST] [--ranks N] [--fault NAME] [--mutant NAME] [--trace]\n";
    return 64;
  }
  return distrun::sim::run(to);
}
