#include "launcher/cli/config_file.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Cuts the line at the first # outside of quotes. An apostrophe without a second one does not open a quote.
std::string_view without_comment(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#') return line.substr(0, i);
    if (line[i] != '"' && line[i] != '\'') continue;
    const std::size_t closed = line.find(line[i], i + 1);
    if (closed != std::string_view::npos) i = closed;
  }
  return line;
}

// Removes the quotes if one pair encloses the whole text.
std::string unquoted(std::string_view text) {
  const bool opens = text.size() > 1 && (text.front() == '"' || text.front() == '\'');
  if (opens && text.find(text.front(), 1) == text.size() - 1) text = text.substr(1, text.size() - 2);
  return std::string(text);
}

// Splits at commas outside of quotes.
std::vector<std::string> items_of(std::string_view list) {
  std::vector<std::string> out;
  for (std::size_t start = 0, i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '"' || c == '\'') i = std::min(list.find(c, i + 1), list.size() - 1);
    if (c != ',') continue;
    const std::string_view item = trimmed(list.substr(start, i - start));
    if (!item.empty()) out.push_back(unquoted(item));
    start = i + 1;
  }
  return out;
}

// The library's own reader would treat a value with a comma, a blank or a [ as a list.
class Reader {
 public:
  explicit Reader(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      take(trimmed(without_comment(text.substr(0, end))));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (list_) refuse("the list of " + list_->name + " is not closed: write ] at its end");
    return std::move(items_);
  }

 private:
  struct List {
    const CLI::Option* option;
    std::string name;
    std::string text;
  };

  [[noreturn]] void refuse(const std::string& what) const {
    throw CLI::ParseError(app_.get_config_ptr()->as<std::string>() + ", line " + std::to_string(line_) + ": " + what,
                          CLI::ExitCodes::ConfigError);
  }

  static bool takes_several(const CLI::Option* option) {
    return option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  }

  void take(std::string_view line) {
    if (list_) return take_more(line);
    if (line.empty() || line.front() == ';') return;
    if (line.front() == '[') refuse(std::string(line) + ": a config file has no sections. Write lines: name = value");
    const std::size_t equals = line.find('=');
    const std::string key(trimmed(line.substr(0, equals)));
    const std::string_view value = equals == std::string_view::npos ? "" : trimmed(line.substr(equals + 1));
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = known(name);
    if (option == nullptr) refuse_unknown(key, name);
    const bool flag = option->get_items_expected_min() == 0;
    if (value.empty() && !flag) refuse(key + " has no value: write " + key + " = value");
    const auto [before, first] = lines_.emplace(option, line_);
    if (!first && !takes_several(option)) {
      refuse(key + " is given twice, here and in line " + std::to_string(before->second) + ": keep one of them");
    }
    if (value.starts_with('[') && takes_several(option)) {
      list_ = List{.option = option, .name = name, .text = ""};
      return take_more(value.substr(1));
    }
    const std::string plain = unquoted(value);
    if (!flag) return add(option, name, {plain});
    // The flag may take a value: --mpi takes the name of a launcher.
    if (plain == "false") return;
    add(option, name, {plain.empty() || plain == "true" ? option->get_flag_value(name, "") : plain});
  }

  // A list may continue on the next lines.
  void take_more(std::string_view text) {
    list_->text += text;
    if (!text.ends_with(']')) return;
    list_->text.pop_back();
    add(list_->option, list_->name, items_of(list_->text));
    list_.reset();
  }

  // Keeps one item per option, because the library reads only the first item.
  void add(const CLI::Option* option, const std::string& name, std::vector<std::string> values) {
    const auto [at, first] = places_.emplace(option, items_.size());
    if (first) {
      CLI::ConfigItem item;
      item.name = name;
      items_.push_back(std::move(item));
    }
    std::vector<std::string>& all = items_[at->second].inputs;
    all.insert(all.end(), values.begin(), values.end());
  }

  [[nodiscard]] const CLI::Option* known(const std::string& name) const {
    const CLI::Option* option = app_.get_option_no_throw((name.size() == 1 ? "-" : "--") + name);
    return option == nullptr || !option->get_configurable() ? nullptr : option;
  }

  [[noreturn]] void refuse_unknown(const std::string& key, const std::string& name) const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) {
      if (!option->get_configurable() || option->get_group().empty()) continue;
      for (const std::string& spelling : option->get_lnames()) names.push_back(spelling);
    }
    const std::string meant = did_you_mean(name, names);
    refuse(key + " is not an option of distrun" + (meant.empty() ? "; distrun --help lists all options" : meant));
  }

  const CLI::App& app_;
  std::size_t line_ = 0;
  std::optional<List> list_;  // the list that is not closed yet
  std::map<const CLI::Option*, std::size_t> lines_;
  std::map<const CLI::Option*, std::size_t> places_;  // index in items_
  std::vector<CLI::ConfigItem> items_;
};

}  // namespace

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
  const std::string file{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  Reader reader(app_);
  const auto text = unix_text(file, app_.get_config_ptr()->as<std::string>());
  if (!text.ok()) throw CLI::ParseError(text.status().message(), CLI::ExitCodes::ConfigError);
  return reader.read(*text);
}

}  // namespace distrun::launcher
