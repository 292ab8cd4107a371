#include "launcher/report/lines/last_exception.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace distrun::launcher {
namespace {

constexpr std::string_view kFrame = "  File \"";
constexpr std::size_t kLongest = 400;
// A traceback belongs to the end of a program if only lines of this time come after it.
constexpr Duration kAfterwards = std::chrono::seconds(5);

// torch.distributed puts "[rank3]: " before each line of a traceback.
std::string_view without_tag(std::string_view line) {
  constexpr std::string_view kTag = "[rank";
  const std::size_t end = line.find("]: ");
  return line.starts_with(kTag) && end < kTag.size() + 8 ? line.substr(end + 3) : line;
}

net::CodePlace frame_place(std::string_view line) {
  constexpr std::string_view kLine = "\", line ";
  line.remove_prefix(kFrame.size());
  const std::size_t end = line.find(kLine);
  if (end == std::string_view::npos) return {};
  net::CodePlace place{.file = std::string(line.substr(0, end))};
  const std::string_view number = line.substr(end + kLine.size());
  std::from_chars(number.data(), number.data() + number.size(), place.line);
  return place;
}

// "package.module.Error: text" becomes "Error: text". Empty if the line does not begin with the name of a class.
std::string without_module(std::string_view line) {
  const std::string_view name = line.substr(0, line.find(": "));
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  });
  return is_name ? std::string(line.substr(name.rfind('.') + 1, kLongest)) : std::string();
}

}  // namespace

void LastException::add(std::string_view line, TimePoint written) {
  last_ = written;
  if (line.ends_with('\r')) line.remove_suffix(1);
  line = without_tag(line);
  if (line.starts_with(kFrame)) {  // also without a heading, for an error of syntax
    inside_ = true;
    place_ = frame_place(line);
  } else if (line.starts_with("Traceback (most recent call last):")) {
    inside_ = true;
    place_ = {};
  } else if (inside_ && !line.starts_with(' ')) {
    inside_ = false;
    const std::string text = without_module(line);
    if (text.empty()) return;
    found_ = {.text = text, .place = place_};
    found_at_ = written;
  }
}

std::optional<RaisedException> LastException::get() const {
  return found_ && found_at_ + kAfterwards >= last_ ? found_ : std::nullopt;
}

bool is_end_of_input(std::string_view exception) {
  const std::string_view name = exception.substr(0, exception.find_first_of(": ("));
  return name == "BdbQuit" || exception.starts_with("EOFError: EOF when reading a line");
}

}  // namespace distrun::launcher
