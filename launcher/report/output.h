// Shows and stores the output of all ranks, on the terminal and in files. Adds tags, keeps the order, gives credit to
// the agents, and shows equal lines of many ranks once. Keeps back follow-up errors, so that they do not bury the first
// one. Runs in the loop of the head. The parts know each other only through this class.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options.h"
#include "launcher/protocol/messages.h"
#include "launcher/report/destination_watch.h"
#include "launcher/report/errors/error_lines.h"
#include "launcher/report/job_logs.h"
#include "launcher/report/lines/last_lines.h"
#include "launcher/report/lines/line_assembler.h"
#include "launcher/report/lines/line_tags.h"
#include "launcher/report/lines/time_order.h"
#include "launcher/report/lines/unfinished_lines.h"
#include "launcher/report/screen_lines.h"
#include "launcher/report/standard_streams.h"

namespace distrun::launcher {

struct OutputConfig {
  OutputOptions options;
  bool colour = true;  // on terminals
  // On terminals, shows an unfinished line. False for terminals that cannot do this (TERM=dumb).
  bool draws = true;
  std::vector<std::string> hosts;  // by rank
};

class Output {
 public:
  static Result<std::unique_ptr<Output>> create(const OutputConfig& config);

  // Called when ranks are about to start. Empties the files of an earlier run.
  void begin() { logs_.begin(); }
  void write(const StreamBytes& bytes, TimePoint now);
  // This rank writes no more. Shows its unterminated last line.
  void finish(int rank, TimePoint now);
  // Shows a message of distrun itself. It has one or more lines, and each is shown as "distrun: ...".
  void print(const std::string& text);

  // Which lines of standard error are shown.
  ErrorLines& errors() { return errors_; }
  // Shows lines that it has held until now.
  void show_errors(std::vector<ErrorLines::Of> lines, TimePoint now);
  [[nodiscard]] const LastLines& last_lines() const { return last_lines_; }
  // True if the last lines of this rank are among the last lines above those that print() would add now.
  bool shows_last_lines(int rank, TimePoint now) { return screen_lines_.shows(rank, last_lines_.of(rank), now); }

  void watch(Poller& poller);
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // Credit for the agents to send more. Gives none while a terminal or the disk is slow.
  std::vector<Credit> take_credits();
  // True if a reader or the disk is slow. Agents then get no credit and may have to wait.
  [[nodiscard]] bool behind() const { return largest_backlog() > DestinationWatch::kHighWater; }
  [[nodiscard]] bool reader_gone() const { return screen_.state(0).closed; }
  // True if some text could not be written.
  [[nodiscard]] bool lost() const { return screen_.lost() || logs_.failed(); }
  // All ranks have ended. Shows every line that still waits for other ranks.
  void finish_all();
  // True if text waits for its reader or the disk.
  [[nodiscard]] bool pending() const { return largest_backlog() != 0; }
  // The user wants an end. From now on distrun waits only a moment for a reader or a disk that takes nothing.
  void end_soon() { phase_.ending_soon = true; }
  // Takes over the unwritten text of `earlier`, which ends.
  void follow(Output& earlier);

 private:
  struct Stream {
    LineAssembler assembler;
    std::uint32_t owed = 0;  // bytes to give credit for
  };

  Output(const OutputConfig& config, JobLogs logs);
  // The destinations of text: 0 and 1 are the two streams, 2 is the files.
  [[nodiscard]] DestinationState state(int place) const { return place == 2 ? logs_.state() : screen_.state(place); }
  [[nodiscard]] std::size_t largest_backlog() const;
  void add_piece(int rank, int stream, Piece piece, TimePoint written, TimePoint now);
  void log(int rank, int stream, const Piece& piece, TimePoint written, TimePoint now);
  void follow_line(int rank, int stream, TimePoint now);
  void show_unfinished(TimePoint now);
  void draw(int rank, int stream, std::vector<std::string> lines);
  void draw_again(int rank, int stream, TimePoint now);
  void show_paused(int rank, int stream, TimePoint now);
  void print_to(int stream, const std::string& text, TimePoint now);
  // Shows a message about one destination on another one.
  void print_for(int place, const std::string& text, TimePoint now);

  const OutputConfig config_;
  const LineTags tags_;
  std::vector<Stream> streams_;  // index rank * 2 + stream
  HostClocks clocks_;
  LastLines last_lines_;
  ErrorLines errors_;
  UnfinishedLines unfinished_;
  StandardStreams screen_;
  ScreenLines screen_lines_;
  JobLogs logs_;
  std::map<int, DestinationWatch> watches_;  // by destination, for those in use
  DestinationWatch::Phase phase_;
};

}  // namespace distrun::launcher
