#include "runtime/base/json.h"

#include <algorithm>
#include <array>
#include <cstdio>

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

// Length of the valid UTF-8 sequence at `at`, 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(at + 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool outside = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || outside ? 0 : length;
}

}  // namespace

const Json* Json::find(std::string_view name) const {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return &values[i];
  }
  return nullptr;
}

std::optional<Json> parse_json(std::string_view text) { return Reader(text).document(); }

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const auto c = static_cast<unsigned char>(text[i]);
    if (length == 0 || c < 0x20 || c == 0x7F) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
      out += code.data();
      ++i;
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += text.substr(i, length);
    i += length;
  }
  return out + "\"";
}

}  // namespace distrun
