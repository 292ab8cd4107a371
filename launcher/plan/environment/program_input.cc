#include "launcher/plan/environment/program_input.h"

#include <algorithm>
#include <array>
#include <iterator>
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
  std::string_view file = "";  // options whose value is the file of the program
  Names long_file = "";
  bool shell = false;  // -s means standard input, -o takes the next word, and - and + are options too
  bool needs_operand = false;
  bool only_options = false;  // the first operand is not the file of the program
};

constexpr std::array<Interpreter, 15> kInterpreters = {{
    {.names = "python pypy ipython pythonw graalpy",
     .instead = "cmhV?",
     .values = "WX",
     .attached = "",
     .long_instead = "help help-all help-env help-xoptions version",
     .long_values = "check-hash-based-pycs"},
    {.names = "sh bash rbash dash ash ksh mksh zsh yash csh tcsh fish",
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
     .instead = "e",
     .values = "dg",
     .attached = "",
     .long_instead = "help version args",
     .long_values = "debugger gui encoding",
     .file = "f",
     .long_file = "file"},
    {.names = "Rscript",
     .instead = "e",
     .values = "",
     .attached = "",
     .long_instead = "help version",
     .long_values = "",
     .needs_operand = true},
    {.names = "lua luajit", .instead = "ev", .values = "l", .attached = "j", .long_instead = "", .long_values = ""},
    {.names = "php",
     .instead = "rhvimB",
     .values = "cdz",
     .attached = "",
     .long_instead = "run help version info",
     .long_values = "define",
     .file = "f",
     .long_file = "file"},
    {.names = "tclsh wish octave pwsh",
     .instead = "",
     .values = "p",
     .attached = "",
     .long_instead = "eval help version",
     .long_values = "path"},
    {.names = "gnuplot guile racket ocaml scala groovy ghci xonsh nu elvish sage expect",
     .instead = "cehv",
     .values = "",
     .attached = "",
     .long_instead = "command commands eval help version",
     .long_values = "",
     .file = "f",
     .long_file = "file"},
    {.names = "awk gawk mawk nawk original-awk",
     .instead = "",
     .values = "FvieEl",
     .attached = "",
     .long_instead = "help version",
     .long_values = "field-separator assign include source load",
     .file = "f",
     .long_file = "file",
     .only_options = true},
    {.names = "sed gsed",
     .instead = "",
     .values = "el",
     .attached = "i",
     .long_instead = "help version",
     .long_values = "expression line-length",
     .file = "f",
     .long_file = "file",
     .only_options = true},
    {.names = "make gmake",
     .instead = "hv",
     .values = "CIoW",
     .attached = "jlO",
     .long_instead = "help version",
     .long_values = "directory include-dir",
     .file = "f",
     .long_file = "file makefile",
     .only_options = true},
}};

// Programs that start the command behind their own options. Others do so too, but for these it is certain.
constexpr Names kRunners =
    "env nice ionice numactl taskset chrt stdbuf time timeout nohup setsid sudo unbuffer busybox catchsegv valgrind "
    "strace ltrace perf nsys ncu rocprof rocprofv2 rocprofv3 py-spy ddtrace-run opentelemetry-instrument uv conda "
    "mamba micromamba poetry pipenv pdm hatch rye pixi singularity apptainer docker podman xvfb-run exec command "
    "builtin prlimit setarch linux32 linux64 i386 x86_64 aarch64 unshare nsenter chroot gosu doas setpriv runuser "
    "su-exec dumb-init tini catatonit enroot ch-run shifter sarus firejail bwrap proot fakeroot faketime "
    "systemd-run cgexec flock script trickle rlwrap ccache direnv mise asdf pyenv nix nix-shell guix spack";
// They run a script of Python, which `-` or /dev/stdin may stand for. Commands, and modules behind -m.
constexpr Names kScriptRunners =
    "coverage kernprof torchrun accelerate deepspeed viztracer scalene pyinstrument memray uv uvx deno bun cProfile "
    "profile pdb trace runpy torch.distributed.run torch.distributed.launch accelerate.commands.launch line_profiler "
    "memory_profiler debugpy";
// For these, the names behind them are data, and so is their standard input.
constexpr Names kReaders =
    "cat tac tee echo printf grep egrep fgrep zgrep rg ag ack sort head tail wc cut tr uniq diff cmp comm join paste "
    "find ls which type whereis file man git pip apt dpkg xargs parallel jq yq column less more split dd tar gzip xz "
    "zstd cp mv rm cd kill pkill pgrep test true false sleep md5sum sha256sum od xxd hexdump base64 bc nc ssh";

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

enum class Program {
  kElsewhere,  // in a file, a module or an option
  kText,       // in a word for a shell: sh -c '...'
  kInput,      // in standard input, because nothing else is named
  kInputNamed  // in standard input, by - or -s
};

// The first word behind the options of the interpreter.
class Operand {
 public:
  explicit Operand(const Interpreter& how) : how_(how) {}

  // Where the interpreter has its program. `words` are those behind its name.
  Program find(Words words) {
    for (; at_ < words.size(); ++at_) {
      const std::string_view word = words[at_];
      if (word == "--" || (how_.shell && word == "-")) {
        ++at_;
        break;
      }
      const bool option = word.size() > 1 && (word.front() == '-' || (how_.shell && word.front() == '+'));
      if (!option) break;
      const auto where = word.starts_with("--") ? take_long(words) : take_letters(words);
      if (where) return *where;
    }
    if (how_.only_options) return Program::kElsewhere;
    by_operand_ = at_ < words.size();
    if (by_operand_) return in_file(words[at_]);
    return how_.needs_operand ? Program::kElsewhere : Program::kInput;
  }
  // Where in the words the script is, if there is one.
  [[nodiscard]] std::optional<std::size_t> script(Words words) {
    const bool elsewhere = find(words) == Program::kElsewhere;
    return elsewhere && by_operand_ ? std::optional(at_) : std::nullopt;
  }
  // For kText: where in the words the text is.
  [[nodiscard]] std::size_t text() const { return at_ + 1; }

 private:
  static Program in_file(std::string_view file) {
    return names_standard_input(file) ? Program::kInputNamed : Program::kElsewhere;
  }
  // The value of an option that is the last of its word.
  std::string_view next(Words words) { return ++at_ < words.size() ? std::string_view(words[at_]) : ""; }

  std::optional<Program> take_long(Words words) {
    const std::string_view option = std::string_view(words[at_]).substr(2);
    const std::size_t end = std::min(option.find('='), option.size());
    const std::string_view name = option.substr(0, end);
    const bool attached = end < option.size();
    if (has_name(how_.long_file, name)) return in_file(attached ? option.substr(end + 1) : next(words));
    if (how_.shell && name == "command" && !attached) return Program::kText;
    if (has_name(how_.long_instead, name)) return Program::kElsewhere;
    if (!attached && has_name(how_.long_values, name)) ++at_;
    return std::nullopt;
  }

  std::optional<Program> take_letters(Words words) {
    const std::string_view letters = std::string_view(words[at_]).substr(1);
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const char letter = letters[i];
      const std::string_view rest = letters.substr(i + 1);
      if (how_.file.find(letter) != how_.file.npos) return in_file(rest.empty() ? next(words) : rest);
      if (how_.instead.find(letter) != how_.instead.npos) return how_.shell ? Program::kText : Program::kElsewhere;
      if (how_.shell && letter == 's') return Program::kInputNamed;
      if (how_.shell && (letter == 'o' || letter == 'O')) ++at_;  // bash -eo pipefail
      if (how_.values.find(letter) != how_.values.npos) {
        if (rest.empty()) ++at_;
        break;
      }
      if (how_.attached.find(letter) != how_.attached.npos) break;
    }
    return std::nullopt;
  }

  const Interpreter& how_;
  std::size_t at_ = 0;
  bool by_operand_ = false;
};

// A command of a text for a shell.
struct ShellCommand {
  std::vector<std::string> words;
  bool other_input = false;  // a pipe or a file
};

class ShellText {
 public:
  // Its commands, as far as that is possible without a shell.
  std::vector<ShellCommand> split(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\\' && i + 1 < text.size()) {
        add(text[++i]);
      } else if (c == '"' || c == '\'') {
        const std::size_t end = std::min(text.find(c, i + 1), text.size());
        for (++i; i < end; ++i) add(text[i]);
      } else if (c == ' ' || c == '\t') {
        in_word_ = false;
      } else if (c == '<') {
        out_.back().other_input = true;
        in_word_ = false;
      } else if (std::string_view(";&|\n(){}").find(c) != std::string_view::npos) {
        const bool twice = i + 1 < text.size() && text[i + 1] == c;
        end_command(c == '|' && !twice);
        i += twice ? 1U : 0U;
      } else {
        add(c);
      }
    }
    return std::move(out_);
  }

 private:
  void add(char c) {
    if (!in_word_) out_.back().words.emplace_back();
    in_word_ = true;
    out_.back().words.back() += c;
  }
  void end_command(bool pipe) {
    out_.push_back({.words = {}, .other_input = pipe});
    in_word_ = false;
  }

  std::vector<ShellCommand> out_ = {{}};
  bool in_word_ = false;
};

bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-' && word != "--" && word.find('=') == std::string_view::npos;
}

// A=1 before a command.
bool is_assignment(std::string_view word) {
  const std::size_t end = word.find('=');
  return end != std::string_view::npos && end > 0 && word.find_first_of("-/") > end;
}

// `env -S 'python -'` splits the word.
std::vector<std::string> with_split_words(Words words) {
  std::vector<std::string> out;
  bool env = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    std::string_view text;
    if (env && (word == "--split-string" || (is_option(word) && !word.starts_with("--") && word.ends_with('S')))) {
      if (i + 1 < words.size()) text = words[++i];
    } else if (env && word.starts_with("--split-string=")) {
      text = word.substr(word.find('=') + 1);
    } else if (env && word.starts_with("-") && !word.starts_with("--") && word.find('S') < word.find(' ')) {
      text = word.substr(word.find('S') + 1);
    } else {
      env = base_name(word) == "env" || (env && (word.starts_with('-') || is_assignment(word)));
      out.emplace_back(word);
      continue;
    }
    const std::vector<ShellCommand> parts = ShellText().split(text);
    out.insert(out.end(), parts.front().words.begin(), parts.front().words.end());
    env = false;
  }
  return out;
}

// A command with the programs before its interpreter.
class CommandLine {
 public:
  // `in_text`: it stands in a text for a shell, and only programs that are certain to start others count as such.
  CommandLine(Words words, bool in_text) : words_(words), in_text_(in_text) {}

  [[nodiscard]] bool from_input() {
    for (std::size_t at = 0; at < words_.size(); ++at) {
      if (const auto answer = look_at(at)) return *answer;
    }
    return false;
  }

 private:
  // The answer, if this word decides it.
  std::optional<bool> look_at(std::size_t at) {
    const std::string_view name = base_name(words_[at]);
    const bool value = at > 0 && is_option(words_[at - 1]);
    if (const Interpreter* const found = interpreter(words_[at])) return look_at(at, *found, value);
    if (value && !has_script_ && is_text_option(words_[at - 1]) && words_[at].find(' ') != std::string::npos) {
      return text_from_input(words_[at]);
    }
    if (has_script_ || value) return std::nullopt;
    if (has_name(kReaders, name)) return false;
    if (has_name(kScriptRunners, name) && runs_input(at + 1)) return true;
    certain_ = certain_ || has_name(kRunners, name);
    return std::nullopt;
  }

  std::optional<bool> look_at(std::size_t at, const Interpreter& how, bool value) {
    const Words rest = words_.subspan(at + 1);
    Operand operand(how);
    const Program program = operand.find(rest);
    if (how.only_options) return program == Program::kInputNamed;
    if (program == Program::kInputNamed && !(has_script_ && value)) return true;
    if (has_script_) return std::nullopt;
    if (program == Program::kInput && may_be_program(at, value)) return true;
    if (program == Program::kText && operand.text() < rest.size()) return text_from_input(rest[operand.text()]);
    for (std::size_t i = at + 1; i + 1 < words_.size() && words_[i].starts_with('-'); ++i) {
      if (words_[i].ends_with('m') && has_name(kScriptRunners, words_[i + 1]) && runs_input(i + 2)) return true;
    }
    has_script_ = has_script_ || program == Program::kElsewhere;
    return std::nullopt;
  }

  // An interpreter without a script: its name may also be an argument of the program before it.
  [[nodiscard]] bool may_be_program(std::size_t at, bool value) const {
    if (at == 0 || certain_) return true;
    constexpr Names kCommon = "python pypy ipython sh bash";
    const std::string_view name = base_name(words_[at]);
    const bool common = words_[at].find('/') != std::string::npos ||
                        has_name(kCommon, name.substr(0, name.find_last_not_of("0123456789.") + 1));
    return !in_text_ && !value && common;
  }

  // `coverage run -`, but not `coverage run train.py -`.
  [[nodiscard]] bool runs_input(std::size_t at) const {
    for (; at < words_.size(); ++at) {
      if (interpreter(words_[at]) != nullptr || is_script(words_[at]) || words_[at] == "-m") return false;
      if (names_standard_input(words_[at])) return true;
    }
    return false;
  }

  static bool is_script(std::string_view word) {
    constexpr std::string_view kEndings[] = {".py", ".pyc", ".js", ".mjs", ".ts", ".mts", ".tsx"};
    return std::any_of(std::begin(kEndings), std::end(kEndings),
                       [word](std::string_view ending) { return word.ends_with(ending); });
  }

  static bool is_text_option(std::string_view option) {
    return option == "--command" || (!option.starts_with("--") && option.ends_with('c'));
  }

  static bool text_from_input(std::string_view text) {
    for (const ShellCommand& command : ShellText().split(text)) {
      Words words(command.words);
      while (!words.empty() && (is_assignment(words.front()) || has_name(kKeywords, words.front()))) {
        words = words.subspan(1);
      }
      if (!command.other_input && CommandLine(words, true).from_input()) return true;
    }
    return false;
  }

  static constexpr Names kKeywords = "if then else elif do while until !";

  Words words_;
  bool in_text_;
  bool certain_ = false;     // a program before starts the rest
  bool has_script_ = false;  // an interpreter before has its program from elsewhere, and the rest may be its arguments
};

}  // namespace

bool names_standard_input(std::string_view word) {
  return word == "-" || word == "/dev/stdin" || word == "/dev/fd/0" || word == "/proc/self/fd/0";
}

std::optional<std::size_t> script_of(const std::vector<std::string>& command) {
  const Interpreter* const found = command.empty() ? nullptr : interpreter(command.front());
  if (found == nullptr) return std::nullopt;
  const auto at = Operand(*found).script(Words(command).subspan(1));
  return at ? std::optional(*at + 1) : std::nullopt;
}

bool reads_program_from_input(const std::vector<std::string>& command) {
  const std::vector<std::string> words = with_split_words(command);
  return CommandLine(words, false).from_input();
}

}  // namespace distrun::launcher
