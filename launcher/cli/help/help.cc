#include "launcher/cli/help/help.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "launcher/cli/help/other_launchers_options.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/pasted.h"
#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kTextColumn = 33;  // where the text of an option begins in --help
constexpr char kAllOptions[] = "options";

constexpr char kUsage[] =
    "Starts N copies of a program and lets them train together.\n\n"
    "Usage: distrun [options] program [arguments]\n"
    "       distrun [options] script.py [arguments]\n"
    "       distrun [options] -m module [arguments]\n"
    "       distrun check [--build] [--json]                   check this machine\n"
    "       distrun check -H HOST,... [options]                check several hosts\n"
    "       distrun agent --connect HEAD:PORT --key-file FILE  join a job\n"
    "       distrun help [TOPIC | OPTION]                      read more\n";

constexpr char kExamples[] =
    "Examples:\n"
    "  distrun -np 4 python train.py            four ranks of a script on this machine\n"
    "  distrun -np 4 train.py --epochs 3        the same, with the Python of this environment\n"
    "  distrun -np 2 -m package.train           a Python module\n"
    "  distrun -H node1:4,node2:4 train.py      eight ranks on two hosts\n"
    "  distrun -np 2 --output-dir logs ./a.out  any program; also write its output to files\n"
    "  distrun --explain -np 4 ./a.out          show the plan, and start nothing\n"
    "  distrun check -H node1,node2             check whether these hosts fit together\n";

constexpr char kCheckUsage[] =
    "Checks this machine, or whether several hosts fit together.\n\n"
    "Usage: distrun check [--build] [--no-detect] [--json]\n"
    "       distrun check -H HOST,... | --hostfile FILE | --config FILE [--json] [options of distrun]\n";

constexpr char kAgentUsage[] =
    "Joins the job of `distrun --agents N --listen PORT --key-file FILE` with this host.\n\n"
    "Usage: distrun agent --connect HEAD:PORT --key-file FILE [--host NAME] [--timeout SECONDS]\n";

std::string name_and_value(const std::string& name, const std::string& value) {
  return value.empty() || value.starts_with("[=") ? name + value : name + " " + value;
}

std::string line_of(const OptionText& option) {
  std::string line =
      "  " + (option.shown.empty() ? name_and_value(names_of(option).front(), option.value) : option.shown);
  line.resize(std::max(line.size() + 1, kTextColumn), ' ');
  return line + option.brief + "\n";
}

void add_wrapped(std::string& out, std::string_view line, std::size_t indent) {
  const std::size_t hanging = line.starts_with("- ") ? 2 : 0;
  std::size_t column = kHelpColumns;
  bool first = true;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    if (column + 1 + word.size() > kHelpColumns) {
      column = indent + (first ? 0 : hanging);
      out += (first ? "" : "\n") + std::string(column, ' ');
      first = false;
    } else {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  out += '\n';
}

// Wraps the paragraphs and the lists of a text, see HelpTopic::text.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) {
      out += '\n';
    } else if (line.starts_with("  ")) {
      out += std::string(indent, ' ') + std::string(line) + "\n";
    } else {
      add_wrapped(out, line, indent);
    }
  }
  return out;
}

std::string entry_of(const OptionText& option) {
  std::string out;
  for (const std::string& name : names_of(option))
    out += (out.empty() ? "  " : ", ") + name_and_value(name, option.value);
  return out + "\n" + wrapped(option.brief + ".", 6) + "\n" + wrapped(option.more, 6);
}

std::string entries_of(const HelpTopic& topic) {
  std::string out;
  for (const OptionText& option : option_texts()) {
    if (option.topic == topic.name) out += "\n" + entry_of(option);
  }
  return out;
}

std::string text_of(const HelpTopic& topic) {
  return std::string(topic.heading) + "\n\n" + wrapped(topic.text, 0) + entries_of(topic) +
         "\nMore: " + std::string(topic.page) + " in the repository of distrun\n";
}

std::string list_of_topics() {
  std::string out = "Topics:\n";
  const auto line = [](std::string_view name, std::string_view text) {
    std::string start = "  " + std::string(name);
    start.resize(16, ' ');
    return start + std::string(text) + "\n";
  };
  for (const HelpTopic& topic : help_topics()) out += line(topic.name, topic.heading);
  return out + line(kAllOptions, "All options with their texts");
}

std::string all_options() {
  std::string out;
  for (const HelpTopic& topic : help_topics()) {
    if (topic.of != HelpOf::kDistrun) continue;
    out += (out.empty() ? "" : "\n") + std::string(topic.heading) + ":\n" + entries_of(topic);
  }
  return out;
}

bool is_alias(const HelpTopic& topic, const std::string& word) {
  return (" " + std::string(topic.aliases) + " ").find(" " + word + " ") != std::string::npos;
}

// "--tty=1", "tty" and "host_timeout" name options too.
std::string without_dashes(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

const OptionText* option_named(const std::string& name) {
  const OptionText* found = nullptr;
  for (const OptionText& option : option_texts()) {
    for (const std::string& spelling : names_of(option)) {
      const bool better = found == nullptr || (is_of(option, HelpOf::kDistrun) && !is_of(*found, HelpOf::kDistrun));
      if (without_dashes(spelling) == name && better) found = &option;
    }
  }
  return found;
}

HelpAnswer unknown(const std::string& word, const std::string& name) {
  std::vector<std::string> names;
  for (const HelpTopic& topic : help_topics()) {
    names.emplace_back(topic.name);
    std::istringstream aliases{std::string(topic.aliases)};
    names.insert(names.end(), std::istream_iterator<std::string>(aliases), {});
  }
  for (const OptionText& option : option_texts()) {
    for (const std::string& spelling : names_of(option)) names.push_back(without_dashes(spelling));
  }
  return {.text = "distrun: help: " + word + " is neither a topic nor an option" + did_you_mean(name, names) +
                  note_on_pasted(word) + "\n\n" + list_of_topics(),
          .exit_code = exit_code::kUsage};
}

std::string instead_of(const std::string& word, const OtherLaunchersOption& other) {
  return wrapped(word.substr(0, word.find('=')) + " is not an option of distrun: " + std::string(other.instead) + ".",
                 0);
}

HelpAnswer about(const std::string& typed) {
  const std::string word = in_our_spelling(typed);
  const OtherLaunchersOption* const other = find_other_launchers_option(word);
  if (other != nullptr && word.starts_with('-')) return {.text = instead_of(typed, *other)};
  const std::string name = without_dashes(word);
  if (word.starts_with('-')) {  // not a topic
    if (const OptionText* option = option_named(name)) return {.text = entry_of(*option)};
  }
  if (name == kAllOptions) return {.text = all_options()};
  const auto topics = help_topics();
  const auto topic = std::find_if(topics.begin(), topics.end(), [&](const auto& one) { return one.name == name; });
  if (topic != topics.end()) return {.text = text_of(*topic)};
  if (const OptionText* option = option_named(name)) return {.text = entry_of(*option)};
  const auto alias = std::find_if(topics.begin(), topics.end(), [&](const auto& one) { return is_alias(one, name); });
  if (alias != topics.end()) return {.text = text_of(*alias)};
  if (other != nullptr) return {.text = instead_of(typed, *other)};
  return unknown(word, name);
}

}  // namespace

std::string help_text(HelpOf command) {
  const bool main = command == HelpOf::kDistrun;
  std::string out = main ? kUsage : command == HelpOf::kCheck ? kCheckUsage : kAgentUsage;
  for (const HelpTopic& topic : help_topics()) {
    if (topic.of != command) continue;
    out += "\n" + (main ? std::string(topic.heading) : "Options") + ":\n";
    for (const OptionText& option : option_texts()) {
      if (option.topic == topic.name) out += line_of(option);
    }
    if (!main) out += "\n`distrun help " + std::string(topic.name) + "` has more.\n";
  }
  if (!main) return out;
  std::string names;
  for (const HelpTopic& topic : help_topics()) names += (names.empty() ? "" : ", ") + std::string(topic.name);
  return out + "\n" + kExamples + "\n" +
         wrapped("`distrun help TOPIC` has more. Topics: " + names + ", " + kAllOptions + ".\n" +
                     "Options may also be lines of a file (--config). Many are variables too: `distrun help settings`.",
                 0);
}

HelpAnswer help_about(const std::vector<std::string>& words) {
  if (words.empty()) {
    return {.text = "`distrun help TOPIC` shows a topic, and `distrun help OPTION` shows an option.\n\n" +
                    list_of_topics() + "\nFor example: distrun help hosts, or distrun help --tty\n"};
  }
  std::string text;
  for (const std::string& word : words) {
    const HelpAnswer one = about(word);
    if (one.exit_code != 0) return one;
    text += (text.empty() ? "" : "\n") + one.text;
  }
  return {.text = text};
}

}  // namespace distrun::launcher
