// The texts of `distrun --help` and `distrun help`: a row for each topic and each option. Pure data.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

// The command whose --help lists a topic's options. kNone: only `distrun help` shows the topic.
enum class HelpOf { kDistrun, kCheck, kAgent, kNone };

struct HelpTopic {
  std::string_view name;     // of `distrun help NAME`
  std::string_view aliases;  // other names for it, separated by blanks
  std::string_view heading;  // above its options in --help
  HelpOf of = HelpOf::kNone;
  std::string_view text;  // paragraphs, lists with "- ", and lines that begin with two blanks, which stay as they are
  std::string_view page;  // its file in the repository
};

struct OptionText {
  std::string_view topic;
  std::string names;  // "-n,--num-proc,--np", without values
  std::string value;  // "N"; empty for a flag
  std::string brief;  // one line of --help
  std::string more;   // the rest for `distrun help`, as in HelpTopic::text
  std::string shown;  // in --help, if it is not the first name with the value
};

// In the order of --help.
std::span<const HelpTopic> help_topics();
// Options of the launcher, the agent and the check, then the settings of the runtime.
const std::vector<OptionText>& option_texts();
// Returns nullptr if none of distrun's own options has the name, as in "--tty".
const OptionText* find_option_text(std::string_view name);
bool is_of(const OptionText& option, HelpOf command);
// "-n,--np" gives "-n" and "--np".
std::vector<std::string> names_of(const OptionText& option);

}  // namespace distrun::launcher
