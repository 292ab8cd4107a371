#include "launcher/report/job_logs.h"

#include <algorithm>
#include <utility>

namespace distrun::launcher {
namespace {

// A line from another host that was written earlier may arrive this much later.
constexpr Duration kLate = std::chrono::milliseconds(300);

Duration late_by(const std::vector<std::string>& hosts) {
  const bool one = std::equal(hosts.begin() + (hosts.empty() ? 0 : 1), hosts.end(), hosts.begin());
  return one ? Duration::zero() : kLate;
}

}  // namespace

Result<JobLogs> JobLogs::create(const std::string& folder, const std::vector<std::string>& hosts) {
  if (folder.empty()) return JobLogs(std::nullopt, Duration::zero());
  auto files = LogFiles::create(folder, static_cast<int>(hosts.size()));
  if (!files.ok()) return files.status();
  return JobLogs(*std::move(files), late_by(hosts));
}

void JobLogs::begin() {
  if (files_) files_->begin();
}

void JobLogs::write(int rank, int stream, std::string_view text) {
  if (files_) files_->write(rank, stream, std::string(text));
}

void JobLogs::add(TimePoint written, TimeOrder::Line line) {
  if (files_) order_.add(written, std::move(line));
}

DestinationState JobLogs::state() const {
  if (!files_) return {.closed = true};
  const Status fault = files_->fault();
  return {.is_file = true,
          .closed = files_->given_up(),
          .loss = fault.ok() ? "" : fault.message(),
          .backlog = files_->backlog(),
          .taken = files_->taken()};
}

void JobLogs::look() {
  if (files_) files_->look();
}

void JobLogs::tick(TimePoint now) {
  sink_.tick(now);
  put(order_.take(now), now);
}

void JobLogs::flush(TimePoint now) { put(order_.take_all(), now); }

void JobLogs::put(std::vector<TimeOrder::Line> lines, TimePoint now) {
  for (TimeOrder::Line& line : lines) sink_.add(line.stream, line.tag, std::move(line.piece), now);
  if (sink_.size() != 0) files_->write_merged(std::exchange(sink_.text(), {}));
}

void JobLogs::finish() {
  if (files_) files_->finish();
}

void JobLogs::watch(Poller& poller) {
  if (files_) files_->watch(poller);
}

}  // namespace distrun::launcher
