#include "launcher/plan/environment/program_input.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace distrun::launcher {
namespace {

using Words = std::span<const std::string>;
using Names = std::string_view;  // separated by blanks

// How an interpreter finds its program. Options of one letter may stand together in a word, as in -lc.
struct Interpreter {
  Names names;
  std::string_view instead;   // options after which it reads no program: -c and -m of Python, also --version
  std::string_view values;    // options with a value: the rest of the word, or else the next word
  std::string_view attached;  // the rest of the word is the value, or there is none
  Names long_instead;         // the same for long options
  Names long_values;
  bool shell = false;  // -s means standard input, -o takes the next word, and - and + are options too
  bool needs_operand = false;
};

constexpr std::array<Interpreter, 11> kInterpreters = {{
    {.names = "python pypy",
     .instead = "cmhV?",
     .values = "WX",
     .attached = "",
     .long_instead = "help help-all help-env help-xoptions version",
     .long_values = "check-hash-based-pycs"},
    {.names = "sh bash dash ash ksh mksh zsh yash csh tcsh fish",
     .instead = "c",
     .values = "",
     .attached = "",
     .long_instead = "help version command",
     .long_values = "rcfile init-file",
     .shell = true},
    {.names = "perl",
     .instead = "eEhvV",
     .values = "I",
     .attached = "0CdDFiIlMmx",
     .long_instead = "help version",
     .long_values = ""},
    {.names = "ruby",
     .instead = "eh",
     .values = "CEIr",
     .attached = "0FiKlTWx",
     .long_instead = "help version",
     .long_values = ""},
    {.names = "node nodejs",
     .instead = "ephv",
     .values = "rC",
     .attached = "",
     .long_instead = "eval print help version",
     .long_values = "require import loader experimental-loader conditions"},
    {.names = "julia",
     .instead = "eEhv",
     .values = "CHJLpt",
     .attached = "gO",
     .long_instead = "eval print help version",
     .long_values = "load procs threads machine-file cpu-target sysimage"},
    {.names = "R",
     .instead = "ef",
     .values = "dg",
     .attached = "",
     .long_instead = "file help version args",
     .long_values = "debugger gui encoding"},
    {.names = "Rscript",
     .instead = "e",
     .values = "",
     .attached = "",
     .long_instead = "help version",
     .long_values = "",
     .needs_operand = true},
    {.names = "lua luajit", .instead = "ev", .values = "l", .attached = "j", .long_instead = "", .long_values = ""},
    {.names = "php",
     .instead = "rfhvimB",
     .values = "cdz",
     .attached = "",
     .long_instead = "run file help version info",
     .long_values = "define"},
    {.names = "tclsh octave",
     .instead = "",
     .values = "p",
     .attached = "",
     .long_instead = "eval help version",
     .long_values = "path"},
}};

// Programs that start the command behind their own options.
constexpr Names kRunners =
    "env nice ionice numactl taskset chrt stdbuf time timeout nohup setsid sudo unbuffer busybox catchsegv valgrind "
    "strace ltrace perf nsys ncu rocprof rocprofv2 rocprofv3 py-spy ddtrace-run opentelemetry-instrument uv conda "
    "mamba micromamba poetry pipenv pdm hatch rye pixi singularity apptainer docker podman xvfb-run";

bool has_name(Names names, std::string_view name) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

std::string_view base_name(std::string_view program) { return program.substr(program.rfind('/') + 1); }

// python3.12 and python3.13t are Pythons.
const Interpreter* interpreter(std::string_view program) {
  const std::string_view name = base_name(program);
  std::string_view plain = name;
  if (plain.ends_with('t') && plain.find_first_of("0123456789") != plain.npos) plain.remove_suffix(1);
  plain = plain.substr(0, plain.find_last_not_of("0123456789.") + 1);
  const auto* const found = std::find_if(kInterpreters.begin(), kInterpreters.end(), [&](const Interpreter& one) {
    return has_name(one.names, name) || has_name(one.names, plain);
  });
  return found == kInterpreters.end() ? nullptr : found;
}

bool is_standard_input(std::string_view operand) {
  return operand == "-" || operand == "/dev/stdin" || operand == "/dev/fd/0" || operand == "/proc/self/fd/0";
}

// The first word behind the options of the interpreter.
class Operand {
 public:
  explicit Operand(const Interpreter& how) : how_(how) {}

  // True if the interpreter reads its program from standard input. `words` are those behind its name.
  bool from_input(Words words) {
    for (; at_ < words.size(); ++at_) {
      const std::string_view word = words[at_];
      if (word == "--" || (how_.shell && word == "-")) {
        ++at_;
        break;
      }
      const bool option = word.size() > 1 && (word.front() == '-' || (how_.shell && word.front() == '+'));
      if (!option) break;
      if (const auto answer = word.starts_with("--") ? take_long(word.substr(2)) : take_letters(word.substr(1))) {
        return *answer;
      }
    }
    if (at_ < words.size()) return is_standard_input(words[at_]);
    return !how_.needs_operand;
  }

 private:
  std::optional<bool> take_long(std::string_view option) {
    const std::size_t end = option.find('=');
    if (has_name(how_.long_instead, option.substr(0, end))) return false;
    if (end == option.npos && has_name(how_.long_values, option)) ++at_;
    return std::nullopt;
  }

  std::optional<bool> take_letters(std::string_view letters) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const char letter = letters[i];
      const bool last = i + 1 == letters.size();
      if (how_.instead.find(letter) != how_.instead.npos) return false;
      if (how_.shell && letter == 's') return true;
      if (how_.shell && (letter == 'o' || letter == 'O')) ++at_;  // bash -eo pipefail
      if (how_.values.find(letter) != how_.values.npos) {
        if (last) ++at_;
        break;
      }
      if (how_.attached.find(letter) != how_.attached.npos) break;
    }
    return std::nullopt;
  }

  const Interpreter& how_;
  std::size_t at_ = 0;
};

}  // namespace

bool reads_program_from_input(const std::vector<std::string>& command) {
  const std::string_view first = command.empty() ? "" : base_name(command.front());
  std::size_t at = 0;
  if (has_name(kRunners, first)) {
    // uv finds the Python for `uv run -` itself.
    if (first == "uv" && command.back() == "-") return true;
    ++at;
    while (at < command.size() && interpreter(command[at]) == nullptr) ++at;
  }
  const Interpreter* const found = at < command.size() ? interpreter(command[at]) : nullptr;
  return found != nullptr && Operand(*found).from_input(Words(command).subspan(at + 1));
}

}  // namespace distrun::launcher
