// Parses JSON that other software put into a variable, and quotes strings for the JSON that distrun writes. Pure.
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
  std::string text{};          // of kWord and kText; escape sequences are not decoded
  std::vector<Json> values{};  // of a kList; of a kObject, in the order of `names`
  std::vector<std::string> names{};

  // Null unless this is an object with a member `name`.
  [[nodiscard]] const Json* find(std::string_view name) const;
};

// Returns nothing if `text` is not JSON, or is nested more than 32 levels deep.
std::optional<Json> parse_json(std::string_view text);

std::string json_string(std::string_view text);  // quoted; the result is valid JSON for any bytes

}  // namespace distrun
