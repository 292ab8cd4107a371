#include "launcher/report/lines/control_codes.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace distrun::launcher {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::size_t kLongestSequence = 64;
constexpr int kLargestCount = 9999;
// U+0080 to U+009F are control characters. In UTF-8 they begin with this byte, as the letters up to U+00BF do.
constexpr char kHalfOfControl = '\xc2';

bool is_control_half(char c) { return (static_cast<unsigned char>(c) & 0xE0U) == 0x80U; }

// Characters that move the cursor, begin a sequence, choose another character set or make a terminal answer.
constexpr std::array<bool, 256> kIsCode = [] {
  std::array<bool, 256> out{};
  for (const char code : {'\n', '\r', '\b', '\v', '\f', '\x0e', '\x0f', '\x05', kEscape, kHalfOfControl}) {
    out.at(static_cast<unsigned char>(code)) = true;
  }
  return out;
}();

std::size_t size_of_text(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const bool is_code = kIsCode[static_cast<unsigned char>(bytes[at])];
    const bool letter = bytes[at] == kHalfOfControl && at + 1 < bytes.size() && !is_control_half(bytes[at + 1]);
    if (is_code && !letter) break;
    ++at;
  }
  return at;
}

int number_in(std::string_view text, int otherwise) {
  int out = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return std::clamp(out, 0, kLargestCount);
}

}  // namespace

std::optional<Code> ControlCodes::next(std::string_view& bytes) {
  while (!bytes.empty()) {
    const char c = bytes.front();
    std::optional<Code> found;
    if (state_ == State::kText) {
      found = in_text(bytes);
    } else if (state_ == State::kHalf) {
      state_ = State::kText;
      if (is_control_half(c)) {
        bytes.remove_prefix(1);
      } else {
        found = Code{.text = std::string_view(&kHalfOfControl, 1)};
      }
    } else if (ends_early(c)) {
      state_ = State::kText;
    } else {
      bytes.remove_prefix(1);
      found = in_sequence(c);
    }
    if (found) return found;
  }
  return std::nullopt;
}

// A control character ends a sequence that is not complete, and has its own effect. Strings may have some.
bool ControlCodes::ends_early(char c) const {
  if (state_ == State::kString) return c == '\n';
  return (static_cast<unsigned char>(c) < ' ' && c != kEscape) || static_cast<unsigned char>(c) > '~';
}

std::optional<Code> ControlCodes::in_text(std::string_view& bytes) {
  using Kind = Code::Kind;
  if (const std::size_t size = size_of_text(bytes); size > 0) {
    const std::string_view text = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return Code{.text = text};
  }
  const char c = bytes.front();
  bytes.remove_prefix(1);
  switch (c) {
    case '\n':
      return Code{.kind = Kind::kNewline};
    case '\r':
      return Code{.kind = Kind::kReturn};
    case '\b':
      return Code{.kind = Kind::kLeft};
    case kEscape:
      state_ = State::kEscape;
      return std::nullopt;
    case kHalfOfControl:
      state_ = State::kHalf;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Code> ControlCodes::in_sequence(char c) {
  if (c == kEscape) {
    state_ = State::kEscape;
    return std::nullopt;
  }
  switch (state_) {
    case State::kEscape:
      if (c == '[') {
        state_ = State::kSequence;
        sequence_ = "\x1b[";
      } else if (std::string_view("]PX^_").find(c) != std::string_view::npos) {
        state_ = State::kString;
      } else if (c < ' ' || c > '/') {
        state_ = State::kText;  // a sequence of two characters, or of more with ' ' to '/' between
      }
      return std::nullopt;
    case State::kSequence:
      sequence_ += c;
      if (c >= '@' && c <= '~') {
        state_ = State::kText;
        return meaning(c);
      }
      if (sequence_.size() > kLongestSequence) state_ = State::kText;
      return std::nullopt;
    default:
      if (c == '\a') state_ = State::kText;  // the end of a string, such as the title of a window
      return std::nullopt;
  }
}

std::optional<Code> ControlCodes::meaning(char last) const {
  using Kind = Code::Kind;
  const std::string_view values = std::string_view(sequence_).substr(2, sequence_.size() - 3);
  if (values.find_first_not_of("0123456789;:") != std::string_view::npos) return std::nullopt;
  const int count = std::max(1, number_in(values, 1));
  const int what = number_in(values, 0);
  switch (last) {
    case 'm':
      return Code{.kind = Kind::kColour, .text = sequence_};
    case 'A':
      return Code{.kind = Kind::kUp, .count = count};
    case 'B':
      return Code{.kind = Kind::kDown, .count = count};
    case 'C':
      return Code{.kind = Kind::kRight, .count = count};
    case 'D':
      return Code{.kind = Kind::kLeft, .count = count};
    case 'E':
      return Code{.kind = Kind::kDownReturn, .count = count};
    case 'F':
      return Code{.kind = Kind::kUpReturn, .count = count};
    case 'G':
      return Code{.kind = Kind::kColumn, .count = count - 1};
    case 'J':
      return what == 0 ? std::optional(Code{.kind = Kind::kEraseBelow}) : std::nullopt;
    case 'K':
      if (what == 1) return std::nullopt;
      return Code{.kind = what == 0 ? Kind::kEraseEnd : Kind::kEraseLine};
    default:
      return std::nullopt;
  }
}

}  // namespace distrun::launcher
