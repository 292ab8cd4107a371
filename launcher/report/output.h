// What the user sees and what is kept: all ranks' streams to the terminal and to files, with tags, order, credit for
// the agents, equal lines of many ranks as one, and follow-up errors kept back so that they do not bury the first one.
// For the head's loop. The parts know one another through this class only.
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
#include "launcher/report/job_logs.h"
#include "launcher/report/lines/fold.h"
#include "launcher/report/lines/kept_back.h"
#include "launcher/report/lines/last_lines.h"
#include "launcher/report/lines/line_assembler.h"
#include "launcher/report/lines/line_tags.h"
#include "launcher/report/lines/time_order.h"
#include "launcher/report/lines/unfinished_lines.h"
#include "launcher/report/standard_streams.h"

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
  void begin() { logs_.begin(); }
  void write(const StreamBytes& bytes, TimePoint now);
  // This rank writes no more: an unterminated last line is shown.
  void finish(int rank, TimePoint now);
  // A message of distrun itself, one or more lines, each shown as "distrun: ...".
  void say(const std::string& text);

  // From now on standard error of all ranks but this one is kept back.
  void keep_back_all_but(int rank);
  // Shows what was kept back of a rank after all.
  void show_kept_back(int rank, TimePoint now);
  [[nodiscard]] const LastLines& last_lines() const { return last_lines_; }

  void watch(Poller& poller);
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  // What the agents may send more of. Nothing while a terminal or the disk is behind.
  std::vector<Credit> take_credits();
  // A reader or the disk is slow: agents get no credit, and may have to wait with what they have to say.
  [[nodiscard]] bool behind() const { return largest_backlog() > DestinationWatch::kHighWater; }
  [[nodiscard]] bool reader_gone() const { return screen_.state(0).closed; }
  // Something could not be written.
  [[nodiscard]] bool lost() const { return screen_.lost() || logs_.failed(); }
  // No rank writes any more: all that waits for others is to be shown.
  void finish_all();
  // Something is still to be written, as soon as its reader or the disk takes it.
  [[nodiscard]] bool pending() const { return largest_backlog() != 0; }
  // The user has had enough: a reader or a disk that takes nothing for a moment is waited for no longer.
  void hurry() { phase_.hurried = true; }
  // Takes over what another one, which ends, has not written.
  void follow(Output& earlier);

 private:
  struct Stream {
    LineAssembler assembler;
    std::uint32_t owed = 0;  // bytes to give credit for
  };

  Output(const OutputConfig& config, JobLogs logs);
  // The places where text goes: 0 and 1 are the two streams, 2 is the files.
  [[nodiscard]] DestinationState state(int place) const { return place == 2 ? logs_.state() : screen_.state(place); }
  [[nodiscard]] std::size_t largest_backlog() const;
  void add_piece(int rank, int stream, Piece piece, TimePoint written, TimePoint now);
  void show(int rank, int stream, Piece piece, TimePoint now);
  void show(std::vector<Fold::Line> lines, TimePoint now);
  void log(int rank, int stream, const Piece& piece, TimePoint written, TimePoint now);
  void follow_line(int rank, int stream, TimePoint now);
  void show_unfinished(TimePoint now);
  void draw(int rank, int stream, std::string_view text);
  void show_bar(int rank, int stream, TimePoint now);
  void say_to(int stream, const std::string& text, TimePoint now);
  // About one of the places, on another one.
  void tell(int place, const std::string& text, TimePoint now);

  const OutputConfig config_;
  const LineTags tags_;
  std::vector<Stream> streams_;  // number rank * 2 + stream
  HostClocks clocks_;
  LastLines last_lines_;
  KeptBack kept_back_;
  UnfinishedLines unfinished_;
  Fold fold_;
  StandardStreams screen_;
  JobLogs logs_;
  std::map<int, DestinationWatch> watches_;  // by place, of those in use
  DestinationWatch::Phase phase_;
};

}  // namespace distrun::launcher
