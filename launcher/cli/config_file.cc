#include "launcher/cli/config_file.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>

#include "runtime/base/setting_values.h"

namespace distrun::launcher {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Reads the lines as the library will, only to judge them.
class Judge {
 public:
  explicit Judge(const CLI::App& app) : app_(app) {}

  void read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      judge(trimmed(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw CLI::ParseError(app_.get_config_ptr()->as<std::string>() + ", line " + std::to_string(line_) + ": " + what,
                          CLI::ExitCodes::ConfigError);
  }

  void judge(std::string_view line) {
    if (in_list_) {
      in_list_ = !line.ends_with(']');
      return;
    }
    if (line.empty() || line.front() == '#' || line.front() == ';') return;
    if (line.front() == '[') refuse(std::string(line) + ": there are no sections; write name = value lines");
    const std::size_t equals = line.find('=');
    const std::string key(trimmed(line.substr(0, equals)));
    const std::string_view value = equals == std::string_view::npos ? "" : trimmed(line.substr(equals + 1));
    in_list_ = value.starts_with('[') && !value.ends_with(']');
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    const CLI::Option* option = known(name);
    if (option == nullptr) refuse_unknown(key, name);
    if (value.empty() && option->get_items_expected_min() > 0) refuse(key + " has no value; write " + key + " = value");
    const auto [before, first] = lines_.emplace(option, line_);
    if (!first && option->get_items_expected_max() <= 1) {
      refuse(key + " is given a second time, after line " + std::to_string(before->second) + "; keep one of them");
    }
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
    const std::string nearest = nearest_name(name, names);
    refuse(key + " is not an option of distrun; " +
           (nearest.empty() ? "distrun --help lists them" : "did you mean " + nearest + "?"));
  }

  const CLI::App& app_;
  std::size_t line_ = 0;
  bool in_list_ = false;
  std::map<const CLI::Option*, std::size_t> lines_;
};

}  // namespace

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
  const std::string text{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  Judge(app_).read(text);
  std::istringstream again(text);
  auto read = CLI::ConfigTOML::from_config(again);
  for (CLI::ConfigItem& item : read) std::replace(item.name.begin(), item.name.end(), '_', '-');
  return read;
}

}  // namespace distrun::launcher
