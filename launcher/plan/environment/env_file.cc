#include "launcher/plan/environment/env_file.h"

#include <algorithm>
#include <optional>

#include "launcher/plan/environment/environment.h"
#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::string_view kBlank = " \t";

// The first letter of a name, or a bracket: $HOME, ${HOME}, $(date).
bool starts_expansion(std::string_view text, std::size_t at) {
  if (text[at] == '`') return true;
  if (text[at] != '$' || at + 1 == text.size()) return false;
  const char next = text[at + 1];
  return next == '{' || next == '(' || valid_variable_name(std::string_view(&next, 1));
}

// One line with a variable. Columns of faults count from the start of the line.
class Line {
 public:
  Line(std::string_view line, const Environment& user) : line_(line), user_(user) {
    for (const std::string_view word : {"export", "declare -x", "typeset -x"}) {
      if (!line.starts_with(word) || line.size() == word.size() || kBlank.find(line[word.size()]) == kBlank.npos)
        continue;
      at_ = line.find_first_not_of(kBlank, word.size());
      shell_ = true;
      break;
    }
  }

  // The fault, if there is one.
  std::optional<Fault> read() {
    const std::size_t equals = std::min(line_.find('=', at_), line_.size());
    name_ = line_.substr(at_, equals - at_);
    if (const std::string_view plain = trim(name_); plain.size() < name_.size() && valid_variable_name(plain)) {
      return Fault{at_ + plain.size(), "leave out the blanks before ="};
    }
    if (!valid_variable_name(name_)) return Fault{at_, "expected NAME=value or NAME"};
    if (equals == line_.size()) return std::nullopt;
    at_ = equals + 1;
    value_.emplace();
    const bool quoted = at_ < line_.size() && (line_[at_] == '"' || line_[at_] == '\'');
    if (quoted) return read_quoted();
    if (shell_) return read_word();
    *value_ = line_.substr(at_);
    return std::nullopt;
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  // Nothing: the line has only a name.
  [[nodiscard]] const std::optional<std::string>& value() const { return value_; }

 private:
  std::optional<Fault> read_quoted() {
    const std::size_t start = at_;
    const char quote = line_[at_++];
    for (; at_ < line_.size() && line_[at_] != quote; ++at_) {
      const bool escapes = quote == '"' && line_[at_] == '\\' && at_ + 1 < line_.size() &&
                           std::string_view("\"\\$`").find(line_[at_ + 1]) != std::string_view::npos;
      if (escapes) {
        ++at_;
      } else if (shell_ && quote == '"' && starts_expansion(line_, at_)) {
        return expansion();
      }
      *value_ += line_[at_];
    }
    if (at_ == line_.size()) {
      return Fault{start, "this quote has no end on its line. To have a quote in the value, write it in other quotes"};
    }
    const std::size_t rest = line_.find_first_not_of(kBlank, at_ + 1);
    if (rest == line_.npos || (rest > at_ + 1 && line_[rest] == '#')) return std::nullopt;
    return Fault{rest, "expected nothing after the quote. Write the whole value in quotes"};
  }

  // A value without quotes, as in a shell: it ends at a blank.
  std::optional<Fault> read_word() {
    const std::size_t end = std::min(line_.find_first_of(kBlank, at_), line_.size());
    const std::size_t rest = line_.find_first_not_of(kBlank, end);
    if (rest != line_.npos && line_[rest] != '#') {
      return Fault{rest, "write a value with blanks in quotes, and each variable on its own line"};
    }
    const std::string_view word = line_.substr(at_, end - at_);
    for (const std::size_t start = at_; at_ < end; ++at_) {
      if (starts_expansion(line_, at_)) return expansion();
      if (line_[at_] == '\\' || line_[at_] == '"' || line_[at_] == '\'') {
        return Fault{at_, "write the whole value in quotes, as in " + line_text(start)};
      }
    }
    *value_ = from_home(word, user_);
    return std::nullopt;
  }

  [[nodiscard]] std::string line_text(std::size_t value) const {
    return "export " + std::string(line_.substr(value - name_.size() - 1, name_.size() + 1)) + "'...'";
  }

  [[nodiscard]] Fault expansion() const {
    return {at_, "distrun replaces no $ and no `: write the value itself, or put it in single quotes to keep the sign"};
  }

  std::string_view line_;
  const Environment& user_;
  std::size_t at_ = 0;
  bool shell_ = false;  // the line is written for a shell
  std::string name_;
  std::optional<std::string> value_;
};

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> parse_env_file(std::string_view text, const std::string& file,
                                                                        const Environment& user) {
  std::vector<std::pair<std::string, std::string>> out;
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (whole.empty() || whole.front() == '#') continue;
    Line line(whole, user);
    if (const auto fault = line.read()) {
      return Status(Errc::kInvalidArgument, file_error(file, number, whole, *fault));
    }
    if (line.value()) {
      if (line.name().size() + 1 + line.value()->size() >= kLongestVariable) {
        return Status(Errc::kInvalidArgument,
                      file + ":" + std::to_string(number) + ": " + line.name() +
                          " is longer than a variable may be in Linux (128 KiB). Write the value into a file");
      }
      out.emplace_back(line.name(), *line.value());
    } else if (const auto found = user.find(line.name()); found != user.end()) {
      out.emplace_back(line.name(), found->second);
    }
  }
  return out;
}

}  // namespace distrun::launcher
