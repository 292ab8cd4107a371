#include "runtime/net/launchers/pmi_message.h"

#include <algorithm>

namespace distrun::net {

Result<std::map<std::string, std::string>> parse_pmi(std::string_view line) {
  std::map<std::string, std::string> out;
  std::string* last = nullptr;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos) {
      last = &out[std::string(word.substr(0, equals))];
      *last = word.substr(equals + 1);
    } else if (last != nullptr) {
      *last += " " + std::string(word);
    } else {
      return Status(Errc::kProtocol, "PMI: a message begins with '" + std::string(word) + "', which is not name=value");
    }
  }
  if (!out.contains("cmd")) return Status(Errc::kProtocol, "PMI: a message has no cmd");
  return out;
}

}  // namespace distrun::net
