#include "launcher/report/lines/line_assembler.h"

#include <algorithm>
#include <utility>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr char kReset[] = "\x1b[0m";
constexpr std::size_t kMostRows = 32;
constexpr std::size_t kMostColours = 256;  // bytes
constexpr std::size_t kMostColumns = 10'000;

// The end of the colour that begins at `at`. Lines have no other sequences.
std::size_t end_of_colour(std::string_view text, std::size_t at) {
  const std::size_t last = text.find('m', at);
  return last == std::string_view::npos ? text.size() : last + 1;
}

// Where the character with this number begins.
std::size_t start_of_character(std::string_view text, std::size_t character) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '\x1b') {
      at = end_of_colour(text, at);
      continue;
    }
    if (!continues_character(text[at]) && character-- == 0) return at;
    ++at;
  }
  return at;
}

bool is_blank(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '\x1b' && text[at] != ' ') return false;
    at = text[at] == '\x1b' ? end_of_colour(text, at) : at + 1;
  }
  return true;
}

// Whether the usual colours are on after this sequence.
bool resets(std::string_view colour) { return colour.find_first_of("123456789") == std::string_view::npos; }

}  // namespace

void LineAssembler::feed(std::string_view bytes, const Emit& emit) {
  while (const auto code = codes_.next(bytes)) apply(*code, emit);
}

void LineAssembler::apply(const Code& code, const Emit& emit) {
  const auto count = static_cast<std::size_t>(code.count);
  switch (code.kind) {
    case Code::Kind::kText:
      return write(code.text, emit);
    case Code::Kind::kColour:
      if (colour_.size() > kMostColours) colour_.clear();
      colour_ += code.text;
      return;
    case Code::Kind::kNewline:
      return new_line(emit);
    case Code::Kind::kReturn:
      return return_to(0);
    case Code::Kind::kUp:
      return move(-code.count, emit);
    case Code::Kind::kDown:
      return move(code.count, emit);
    case Code::Kind::kUpReturn:
      move(-code.count, emit);
      return return_to(0);
    case Code::Kind::kDownReturn:
      move(code.count, emit);
      return return_to(0);
    case Code::Kind::kLeft:
      column_ -= std::min(column_, count);
      return;
    case Code::Kind::kRight:
      column_ = std::max(column_, std::min(column_ + count, kMostColumns));
      return;
    case Code::Kind::kColumn:
      return return_to(count);
    case Code::Kind::kEraseEnd:
      return erase(row(), column_);
    case Code::Kind::kEraseLine:
      return erase(row(), 0);
    case Code::Kind::kEraseBelow:
      erase(row(), column_);
      for (std::size_t below = at_ + 1; below < rows_.size(); ++below) erase(rows_[below], 0);
      return;
  }
}

void LineAssembler::return_to(std::size_t column) {
  column_ = column;
  returned_ = column == 0;
}

void LineAssembler::write(std::string_view text, const Emit& emit) {
  const bool draws_over = returned_ || column_ < row().width;
  if (draws_over && in_line_) end_part(emit);
  Row& row = this->row();
  if (draws_over) {
    erase(row, column_);
    row.redrawn = true;
  }
  returned_ = false;
  if (column_ > row.width) row.text.append(column_ - row.width, ' ');
  add_colour();
  row.text += text;
  column_ +=
      static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
  row.width = column_;
  row.moved = true;
  if (row.text.size() < limit_) return;
  leave_block(emit);
  emit_row(this->row(), false, emit);
}

void LineAssembler::add_colour() {
  if (colour_.empty()) return;
  row().text += colour_;
  row().coloured = !resets(std::string_view(colour_).substr(colour_.rfind('\x1b')));
  colour_.clear();
}

void LineAssembler::erase(Row& row, std::size_t from) {
  if (from >= row.width) return;
  row.text.erase(from == 0 ? 0 : start_of_character(row.text, from));
  row.coloured = row.coloured && from != 0;
  row.width = from;
  row.redrawn = row.moved = true;
}

void LineAssembler::new_line(const Emit& emit) {
  add_colour();
  column_ = 0;
  returned_ = false;
  if (at_ + 1 < rows_.size()) {
    ++at_;
    return;
  }
  emit_row(rows_.front(), true, emit);
  if (rows_.size() == 1) return;
  rows_.pop_front();
  rows_.emplace_back();
  if (++scrolled_ >= rows_.size()) leave_block(emit);
}

void LineAssembler::move(int rows, const Emit& emit) {
  if (in_line_) end_part(emit);
  if (rows < 0) {
    scrolled_ = 0;
    row().redrawn = true;
    const auto up = static_cast<std::size_t>(-rows);
    // The line above has been emitted already. It gets a new row.
    for (std::size_t i = at_; i < up && rows_.size() < kMostRows; ++i, ++at_) rows_.push_front({.redrawn = true});
    at_ -= std::min(at_, up);
  } else {
    at_ = std::min(at_ + static_cast<std::size_t>(rows), rows_.size() - 1);
  }
}

void LineAssembler::emit_row(Row& row, bool ends, const Emit& emit) {
  const bool begins = !std::exchange(in_line_, !ends);
  const bool wiped = begins && ends && row.redrawn && is_blank(row.text);
  Piece piece{.text = std::move(row.text), .begins = begins, .ends = ends, .redrawn = row.redrawn};
  if (row.coloured) piece.text += kReset;
  if (ends) piece.text += '\n';
  row = {};
  column_ = 0;
  if (!wiped) emit(std::move(piece));
}

void LineAssembler::end_part(const Emit& emit) { emit_row(row(), true, emit); }

void LineAssembler::leave_block(const Emit& emit) {
  if (rows_.size() == 1) return;
  Row current = std::move(row());
  const std::size_t column = column_;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (i != at_ && !rows_[i].text.empty()) emit_row(rows_[i], true, emit);
  }
  rows_.clear();
  rows_.push_back(std::move(current));
  at_ = 0;
  column_ = column;
}

void LineAssembler::finish(const Emit& emit) {
  add_colour();
  for (Row& row : rows_) {
    if (!row.text.empty() || in_line_) emit_row(row, true, emit);
  }
  rows_ = std::deque<Row>(1);
  at_ = 0;
}

bool LineAssembler::bars_moved() const {
  return has_bars() && std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.moved; });
}

std::vector<std::string> LineAssembler::bars() const {
  std::vector<std::string> out;
  if (!has_bars()) return out;
  for (const Row& row : rows_) {
    if (!is_blank(row.text)) out.push_back(as_it_looks(row));
  }
  return out;
}

std::vector<std::string> LineAssembler::take_bars() {
  std::vector<std::string> out;
  if (!has_bars()) return out;
  for (Row& row : rows_) {
    if (std::exchange(row.moved, false) && !is_blank(row.text)) out.push_back(as_it_looks(row));
  }
  return out;
}

std::string LineAssembler::as_it_looks(const Row& row) {
  return std::string(whole_characters(row.text)) + (row.coloured ? kReset : "");
}

std::string LineAssembler::unfinished() const { return in_line_ || !pauses() ? std::string() : as_it_looks(row()); }

std::optional<Piece> LineAssembler::take_paused() {
  if (!pauses()) return std::nullopt;
  Piece out{.text = as_it_looks(row()), .begins = !std::exchange(in_line_, true), .ends = false, .pauses = true};
  row() = {.text = row().text.substr(whole_characters(row().text).size())};
  column_ = 0;
  return out;
}

std::string_view whole_characters(std::string_view text) {
  // A character has at most three continuation bytes (10xxxxxx) after its first byte.
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (continues_character(static_cast<char>(byte))) continue;
    const std::size_t need = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
    return need > back ? text.substr(0, text.size() - back) : text;
  }
  return text;
}

}  // namespace distrun::launcher
