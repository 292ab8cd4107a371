#include "launcher/report/standard_streams.h"

#include <algorithm>
#include <utility>

namespace distrun::launcher {
namespace {

std::string name_of(int stream) { return stream == 0 ? "standard output" : "standard error"; }

}  // namespace

StandardStreams::StandardStreams(bool draws)
    : draws_(draws),
      output_{.terminal = Terminal(1), .sink = LineSink(false)},
      error_{.terminal = Terminal(2), .sink = LineSink(false)},
      shared_(output_.terminal.same_as(error_.terminal)) {
  for (Stream* stream : {&output_, &error_}) stream->sink = LineSink(draws && stream->terminal.is_tty());
}

Status StandardStreams::open() {
  DISTRUN_RETURN_IF_ERROR(output_.terminal.open());
  return shared_ ? Status() : error_.terminal.open();
}

std::size_t StandardStreams::most_drawn(int stream) const {
  constexpr std::size_t kUsualHeight = 24;
  const std::size_t height = at(stream).terminal.height();
  return std::max<std::size_t>(1, (height == 0 ? kUsualHeight : height) - 1);
}

DestinationState StandardStreams::state(int stream) const {
  const Stream& own = at(stream);
  DestinationState out{.is_file = own.terminal.is_file(),
                       .closed = own.terminal.closed(),
                       .reader_gone = own.terminal.closed(),
                       .backlog = own.sink.size() + own.terminal.in_hand(),
                       .taken = own.terminal.taken()};
  // The job continues. Its end would not give the user this output.
  if (const int fault = own.terminal.lost(); fault != 0) {
    out.loss = name_of(stream) + " cannot be written: " + errno_status("", fault).message().substr(2) +
               "; the job goes on, but output is lost (--output-dir keeps it in files)";
  }
  return out;
}

std::string StandardStreams::name(int stream) const {
  return name_of(stream) + (at(stream).terminal.is_file() ? " (a file)" : "");
}

bool StandardStreams::lost() const {
  const auto one = [](const Terminal& terminal) { return terminal.lost() != 0 || terminal.given_up(); };
  return one(output_.terminal) || one(error_.terminal);
}

void StandardStreams::look() {
  output_.terminal.look();
  error_.terminal.look();
}

void StandardStreams::tick(TimePoint now) {
  output_.sink.tick(now);
  error_.sink.tick(now);
}

void StandardStreams::finish() {
  for (Stream* stream : {&output_, &error_}) {
    if (stream->sink.size() == 0) stream->terminal.finish();
  }
}

void StandardStreams::watch(Poller& poller) {
  output_.terminal.watch(poller, output_.sink.text());
  if (!shared_) error_.terminal.watch(poller, error_.sink.text());
}

std::optional<TimePoint> StandardStreams::deadline() const {
  return earlier(output_.sink.deadline(), error_.sink.deadline());
}

void StandardStreams::follow(StandardStreams& earlier) {
  output_.sink.text() = std::move(earlier.output_.sink.text());
  error_.sink.text() = std::move(earlier.error_.sink.text());
  output_.terminal = std::move(earlier.output_.terminal);
  error_.terminal = std::move(earlier.error_.terminal);
}

}  // namespace distrun::launcher
