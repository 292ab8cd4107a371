// Checks whether a text is JSON. It is not a parser. It only shows that another program can read a file of distrun's.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>

namespace distrun::engine {

class JsonCheck {
 public:
  static bool valid(const std::string& text) {
    JsonCheck check(text);
    return check.value() && (check.spaces(), check.at_ == text.size());
  }

 private:
  explicit JsonCheck(const std::string& text) : text_(text) {}
  void spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(char c) {
    spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool value() {
    spaces();
    if (at_ >= text_.size()) return false;
    if (text_[at_] == '{') return list('{', '}', true);
    if (text_[at_] == '[') return list('[', ']', false);
    if (text_[at_] == '"') return string();
    return number();
  }
  bool list(char open, char close, bool named) {
    if (!take(open)) return false;
    if (take(close)) return true;
    do {
      if (named && (spaces(), !string() || !take(':'))) return false;
      if (!value()) return false;
    } while (take(','));
    return take(close);
  }
  bool string() {
    if (!take('"')) return false;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return false;
      if (text_[at_] == '\\') ++at_;
    }
    return take('"');
  }
  bool number() {
    const std::size_t start = at_;
    while (at_ < text_.size() &&
           (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-' || text_[at_] == '.')) {
      ++at_;
    }
    return at_ > start;
  }
  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace distrun::engine
