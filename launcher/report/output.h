// What the user sees and what is kept: all ranks' streams to the terminal and to files, with tags, order, credit for
// the agents, equal lines of many ranks as one, and follow-up errors kept back so that they do not bury the first one.
// For the head's loop.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options.h"
#include "launcher/protocol/messages.h"
#include "launcher/report/fold.h"
#include "launcher/report/line_assembler.h"
#include "launcher/report/line_sink.h"
#include "launcher/report/log_files.h"
#include "launcher/report/terminal.h"
#include "launcher/report/time_order.h"

namespace distrun::launcher {

struct OutputConfig {
  OutputOptions options;
  bool colour = true;              // on terminals
  bool draws = true;               // on terminals, what a line has before its end; false where they cannot (TERM=dumb)
  std::vector<std::string> hosts;  // of each rank
};

class Output {
 public:
  static Result<std::unique_ptr<Output>> create(const OutputConfig& config);

  // Ranks are about to start: files of an earlier run are emptied.
  void begin();
  void write(const StreamBytes& bytes, TimePoint now);
  // This rank writes no more: an unterminated last line is shown.
  void finish(int rank, TimePoint now);
  // A message of distrun itself, one or more lines, each shown as "distrun: ...".
  void say(const std::string& text);

  // From now on standard error of all ranks but this one is kept back.
  void keep_back_all_but(int rank);
  // Shows what was kept back of a rank after all.
  void show_kept_back(int rank, TimePoint now);
  // The last lines that a rank wrote, to both streams, in the order in which its agent read them. What a program has
  // kept for standard output until it exits does not push out what it said on standard error just before.
  [[nodiscard]] std::vector<std::string> last_lines(int rank) const;
  // The one of them that tells most: of standard error, if that has any of late.
  [[nodiscard]] std::string last_word(int rank) const;

  void watch(Poller& poller);
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // What the agents may send more of. Nothing while a terminal or the disk is behind.
  std::vector<Credit> take_credits();
  // A reader or the disk is slow: agents get no credit, and may have to wait with what they have to say.
  [[nodiscard]] bool behind() const;
  [[nodiscard]] bool reader_gone() const;
  // Something could not be written.
  [[nodiscard]] bool lost() const {
    const auto one = [](const Terminal& terminal) { return terminal.lost() != 0 || terminal.given_up(); };
    return one(output_) || one(error_) || (files_ && files_->failed());
  }
  // No rank writes any more: all that waits for others is to be shown.
  void finish_all();
  // Something is still to be written, as soon as its reader or the disk takes it.
  [[nodiscard]] bool pending() const { return backlog(0) != 0 || backlog(1) != 0 || backlog(kFiles) != 0; }
  // The user has had enough: a reader or a disk that takes nothing for a moment is waited for no longer.
  void hurry() { hurried_ = true; }
  // Takes over what another one, which ends, has not written.
  void follow(Output& earlier);

 private:
  struct TailLine {
    TimePoint written;
    std::string text;  // as it looks on a terminal, cut to a width
    bool bar = false;  // it has been drawn over
  };
  struct Stream {
    LineAssembler assembler;
    std::deque<TailLine> tail;          // last lines
    std::uint32_t owed = 0;             // bytes to give credit for
    bool silenced = false;              // goes to kept_back
    bool in_long_line = false;          // its pieces go where the first one went
    std::optional<TimePoint> draws_at;  // what its line has without an end is shown then
    std::size_t drawn = 0;              // bytes of that, on a terminal
    std::deque<Piece> kept_back;
    std::size_t kept_bytes = 0;
  };
  explicit Output(const OutputConfig& config);
  Stream& stream_of(int rank, int stream) { return streams_[static_cast<std::size_t>(rank * 2 + stream)]; }
  [[nodiscard]] const std::deque<TailLine>& tail_of(int rank, int stream) const {
    return streams_[static_cast<std::size_t>(rank * 2 + stream)].tail;
  }
  static void remember(std::deque<TailLine>& tail, std::string_view line, TimePoint written);
  // What the user has been told about one of the places where text goes: the two streams, and kFiles.
  struct Told {
    bool lost = false;
    bool gone = false;
    bool stuck = false;
    std::size_t taken = 0;           // what the reader had taken at the last look
    std::optional<TimePoint> since;  // it has taken nothing although there is much
  };
  static constexpr int kFiles = 2;
  LineSink& sink_of(int stream) { return stream == 1 && !shared_ ? error_sink_ : output_sink_; }
  Told& told_of(int place) { return told_.at(static_cast<std::size_t>(place)); }
  Terminal& terminal_of(int stream) { return stream == 1 && !shared_ ? error_ : output_; }
  // Bytes that a place has not taken yet, and a number that grows when it takes some.
  [[nodiscard]] std::size_t backlog(int place) const;
  [[nodiscard]] std::size_t taken(int place) const;
  [[nodiscard]] bool closed(int place) const;
  [[nodiscard]] bool is_file(int place) const;  // a disk takes it, not a reader
  [[nodiscard]] std::string name_of_place(int place) const;
  [[nodiscard]] bool folds(int stream);
  [[nodiscard]] bool draws(int stream) { return config_.draws && terminal_of(stream).is_tty(); }
  void add_piece(int rank, int stream, Piece piece, TimePoint written, TimePoint now);
  void show(int rank, int stream, Piece piece, TimePoint now);
  void show(std::vector<Fold::Line> lines, TimePoint now);
  void keep_back(Stream& stream, Piece piece);
  void merge(int rank, int stream, const Piece& piece, TimePoint written, TimePoint now);
  void follow_line(int rank, int stream, TimePoint now);
  void show_unended(TimePoint now);
  void draw(int rank, int stream, std::string_view text);
  void show_bar(int rank, int stream, TimePoint now);
  void write_merged(std::vector<TimeOrder::Line> lines, TimePoint now);
  [[nodiscard]] std::string tag(const std::vector<int>& ranks, bool colour) const;
  void say_to(int stream, const std::string& text, TimePoint now);
  // About one of the places, on another one.
  void tell(int place, const std::string& text, TimePoint now);
  void tell_lost(int stream, TimePoint now);
  void tell_log_fault(TimePoint now);
  void finish_files();
  void tell_gone(int stream, TimePoint now);
  void tell_stuck(int place, TimePoint now);
  [[nodiscard]] std::string stuck_text(int place) const;
  void give_up(int place, TimePoint now);
  [[nodiscard]] Duration patience() const;

  const OutputConfig config_;
  std::vector<Stream> streams_;
  std::set<std::pair<TimePoint, std::size_t>> unended_;  // draws_at and number of each stream that has one
  Terminal output_;
  Terminal error_;
  bool shared_;  // standard output and error are the same file
  bool hurried_ = false;
  bool finished_ = false;
  LineSink output_sink_;
  LineSink error_sink_;
  std::array<Told, 3> told_;
  Fold fold_;
  std::optional<LogFiles> files_;
  std::vector<std::size_t> host_of_;  // by rank
  std::vector<HostClock> clocks_;     // by host
  TimeOrder merged_order_;
  LineSink merged_sink_{false};
};

}  // namespace distrun::launcher
