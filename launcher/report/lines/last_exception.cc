#include "launcher/report/lines/last_exception.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

namespace distrun::launcher {
namespace {

constexpr std::string_view kFrame = "  File \"";
constexpr std::size_t kLongest = 400;
// A traceback belongs to the end of a program if only lines of this time come after it.
constexpr Duration kAfterwards = std::chrono::seconds(5);

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

// A program that was typed (python -c) has no file. Libraries call code that they make the same.
bool is_nameless(std::string_view file) { return file == "<string>" || file == "<stdin>"; }

// "package.module.Error: text" becomes "Error: text". Empty if the line does not begin with the name of a class.
std::string without_module(std::string_view line) {
  const std::string_view name = line.substr(0, line.find(": "));
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  });
  return is_name ? std::string(line.substr(name.rfind('.') + 1, kLongest)) : std::string();
}

// TensorFlow puts these before the place in its graph, or in the program, and the text of an error.
constexpr std::array<std::string_view, 2> kHeadings = {"Graph execution error:", "in user code:"};

bool names_graph_place(std::string_view line) {
  constexpr std::array<std::string_view, 3> kPlaces = {"Detected at node", "<stack traces", "[["};
  return line.ends_with("root error(s) found.") ||
         std::any_of(kPlaces.begin(), kPlaces.end(), [line](auto begin) { return line.starts_with(begin); });
}

}  // namespace

std::string_view without_rank_tag(std::string_view line) {
  constexpr std::string_view kTag = "[rank";
  const std::size_t end = line.find("]: ");
  return line.starts_with(kTag) && end < kTag.size() + 8 ? line.substr(end + 3) : line;
}

// Adds the first later line that says what happened. False if `line` is not a part of the exception's text.
bool LastException::complete(std::string_view line) {
  const std::size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
  line.remove_prefix(indent);
  if (begins_traceback(line)) return false;
  introduces_ = true;
  if (line.empty() || indent >= code_ || names_graph_place(line)) return true;
  if (line.starts_with("File ")) {
    code_ = indent + 1;
    return true;
  }
  introduces_ = false;
  std::string& text = found_->text;
  for (const std::string_view heading : kHeadings) {
    if (text.ends_with(heading)) text.resize(text.size() - heading.size() - 1);
  }
  const bool names_itself = line.starts_with(text);  // "TypeError: ..." again
  text = (names_itself ? "" : text + " ") + std::string(line.substr(0, kLongest));
  return true;
}

void LastException::add(std::string_view line, TimePoint written) {
  last_ = written;
  if (line.ends_with('\r')) line.remove_suffix(1);
  line = without_rank_tag(line);
  if (std::exchange(introduces_, false) && complete(line)) {
    found_at_ = written;
    return;
  }
  if (line.starts_with(kFrame)) {  // also without a heading, for an error of syntax
    inside_ = true;
    innermost_ = frame_place(line);
    const bool replaces = !is_nameless(innermost_.file) || own_.file.empty() || is_nameless(own_.file);
    if (replaces && !is_library(innermost_.file)) own_ = innermost_;
  } else if (begins_traceback(line)) {
    inside_ = true;
    innermost_ = own_ = {};
  } else if (inside_ && !line.starts_with(' ')) {
    inside_ = false;
    const std::string text = without_module(line);
    if (text.empty()) return;
    found_ = {.text = text, .place = own_.file.empty() ? innermost_ : own_, .in_library = is_library(innermost_.file)};
    innermost_ = own_ = {};
    found_at_ = written;
    introduces_ = text.ends_with(':');
    code_ = kNone;
  }
}

std::optional<RaisedException> LastException::get() const {
  return found_ && found_at_ + kAfterwards >= last_ ? found_ : std::nullopt;
}

bool begins_traceback(std::string_view line) {
  return without_rank_tag(line).starts_with("Traceback (most recent call last):");
}

bool continues_traceback(std::string_view line) {
  line = without_rank_tag(line);
  return line.empty() || line.starts_with(' ');  // Python 3.11 marks some frames by an empty line
}

bool connects_tracebacks(std::string_view line) {
  line = without_rank_tag(line);
  return line.empty() || line.starts_with("During handling of the above exception") ||
         line.starts_with("The above exception was the direct cause");
}

std::string exception_in(std::string_view line) { return without_module(without_rank_tag(line)); }

bool is_library(std::string_view file) {
  constexpr std::array<std::string_view, 3> kParts = {"/site-packages/", "/dist-packages/",
                                                      "/__autograph_generated_file"};
  if (file.starts_with('<')) return !is_nameless(file);
  for (const std::string_view folder : {"/lib/python", "/lib64/python"}) {
    const std::size_t at = file.find(folder);
    const std::size_t version = at == std::string_view::npos ? file.size() : at + folder.size();
    if (version < file.size() && std::isdigit(static_cast<unsigned char>(file[version])) != 0) return true;
  }
  return std::any_of(kParts.begin(), kParts.end(),
                     [file](std::string_view part) { return file.find(part) != std::string_view::npos; });
}

bool is_end_of_input(std::string_view exception) {
  const std::string_view name = exception.substr(0, exception.find_first_of(": ("));
  return name == "BdbQuit" || exception.starts_with("EOFError: EOF when reading a line");
}

}  // namespace distrun::launcher
