#include "launcher/report/lines/line_assembler.h"

#include <algorithm>
#include <utility>

namespace distrun::launcher {

void LineAssembler::feed(std::string_view bytes, const Emit& emit) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t end = newline == std::string_view::npos ? bytes.size() : newline + 1;
    pending_.append(bytes.substr(0, end));
    bytes.remove_prefix(end);
    const bool ends = newline != std::string_view::npos;
    if (!ends && pending_.size() < limit_) continue;
    if (!ends && !in_line_ && pending_.find('\r') != std::string::npos) {
      // A progress bar may run for hours without a line end. The part that was overwritten becomes a separate line.
      const std::size_t last = pending_.rfind('\r');
      emit({.text = pending_.substr(0, last) + '\n'});
      pending_.erase(0, last);
      if (pending_.size() < limit_) continue;
    }
    emit({.text = std::exchange(pending_, {}), .begins = !in_line_, .ends = ends});
    in_line_ = !ends;
  }
}

void LineAssembler::finish(const Emit& emit) {
  if (pending_.empty() && !in_line_) return;
  emit({.text = std::exchange(pending_, {}) + '\n', .begins = !in_line_, .ends = true});
  in_line_ = false;
}

std::string_view LineAssembler::progress() const {
  std::string_view text = pending_;
  if (in_line_ || text.find('\r') == std::string_view::npos) return {};
  while (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  const std::size_t last = text.rfind('\r');
  return whole_characters(last == std::string_view::npos ? text : text.substr(last + 1));
}

std::string_view LineAssembler::unfinished() const {
  if (in_line_ || pending_.find('\r') != std::string::npos) return {};
  return whole_characters(pending_);
}

std::string LineAssembler::take_progress() {
  std::string out(progress());
  const std::size_t last = out.empty() ? std::string::npos : pending_.rfind('\r', pending_.find_last_not_of('\r'));
  if (last != std::string::npos) pending_.erase(0, last);
  return out;
}

std::string visible_part(std::string_view line) {
  const bool newline = line.ends_with('\n');
  if (newline) line.remove_suffix(1);
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const std::size_t last = line.rfind('\r');
  if (last != std::string_view::npos) line.remove_prefix(last + 1);
  return std::string(line) + (newline ? "\n" : "");
}

std::string_view whole_characters(std::string_view text) {
  // A character has at most three continuation bytes (10xxxxxx) after its first byte.
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;
    const std::size_t need = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
    return need > back ? text.substr(0, text.size() - back) : text;
  }
  return text;
}

}  // namespace distrun::launcher
