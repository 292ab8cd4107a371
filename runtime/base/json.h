// JSON as a value, as other software has put it into a variable, and strings for the JSON that we write. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun {

struct Json {
  enum class Kind { kWord, kText, kList, kObject };  // kWord: a number, true, false, null
  Kind kind = Kind::kWord;
  std::string text{};          // of kWord and kText; escapes stay as they are
  std::vector<Json> values{};  // of kList, and of kObject in the order of its names
  std::vector<std::string> names{};

  // Null unless this is an object that has the name.
  [[nodiscard]] const Json* find(std::string_view name) const;
};

// Nothing if it is no JSON, or nested more deeply than anybody writes it.
std::optional<Json> parse_json(std::string_view text);

std::string json_string(std::string_view text);  // quoted; valid JSON whatever the bytes are

}  // namespace distrun
