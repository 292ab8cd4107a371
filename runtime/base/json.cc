#include "runtime/base/json.h"

#include <algorithm>

namespace distrun {
namespace {

constexpr int kDepth = 32;
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kEndsWord = " \t\r\n,:]}[{\"";

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  std::optional<Json> document() {
    auto out = value(0);
    skip_space();
    return rest_.empty() ? std::move(out) : std::nullopt;
  }

 private:
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpace), rest_.size())); }

  bool take(char c) {
    skip_space();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<Json> value(int depth) {
    if (depth == kDepth) return std::nullopt;
    if (take('[')) return members({.kind = Json::Kind::kList}, ']', depth);
    if (take('{')) return members({.kind = Json::Kind::kObject}, '}', depth);
    if (take('"')) return text();
    const std::string_view word = rest_.substr(0, rest_.find_first_of(kEndsWord));
    rest_.remove_prefix(word.size());
    return word.empty() ? std::nullopt : std::optional(Json{.text = std::string(word)});
  }

  std::optional<Json> members(Json out, char end, int depth) {
    if (take(end)) return out;
    do {
      if (out.kind == Json::Kind::kObject) {
        auto name = take('"') ? text() : std::nullopt;
        if (!name || !take(':')) return std::nullopt;
        out.names.push_back(std::move(name->text));
      }
      auto one = value(depth + 1);
      if (!one) return std::nullopt;
      out.values.push_back(*std::move(one));
    } while (take(','));
    return take(end) ? std::optional(std::move(out)) : std::nullopt;
  }

  std::optional<Json> text() {
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      if (rest_[i] == '\\') {
        ++i;
      } else if (rest_[i] == '"') {
        Json out{.kind = Json::Kind::kText, .text = std::string(rest_.substr(0, i))};
        rest_.remove_prefix(i + 1);
        return out;
      }
    }
    return std::nullopt;
  }

  std::string_view rest_;
};

}  // namespace

const Json* Json::find(std::string_view name) const {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return &values[i];
  }
  return nullptr;
}

std::optional<Json> parse_json(std::string_view text) { return Reader(text).document(); }

}  // namespace distrun
