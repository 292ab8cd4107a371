#include "runtime/engine/monitoring/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "runtime/base/json.h"
#include "runtime/base/setting_values.h"
#include "runtime/base/system/folder.h"

namespace distrun::engine {
namespace {

constexpr std::size_t kMaxLanes = 4096;     // per rank; further tensors share one lane
constexpr std::string_view kEnd = "\n]\n";  // completes the file; the next events overwrite it
constexpr std::string_view kStart = "[";

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

// Writes a decimal point in every locale.
std::string microseconds(std::int64_t ns) {
  std::string text = std::to_string(ns);
  const std::size_t sign = ns < 0 ? 1 : 0;
  if (text.size() < sign + 4) text.insert(sign, sign + 4 - text.size(), '0');
  return text.insert(text.size() - 3, ".");
}

Result<Fd> open_timeline(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const Folder folder(parent.empty() ? "." : parent.string());
  Folder::Opened out{.error = errno};
  if (folder.valid()) out = folder.open_to_write(std::filesystem::path(path).filename(), O_TRUNC);
  if (out.refused) {
    return Status(Errc::kSystem,
                  "timeline: '" + path +
                      "' is a link or not a plain file, and other users may write in its folder. Remove it, or "
                      "name a file in a folder of your own");
  }
  if (!out.file.valid()) return errno_status("timeline: cannot write '" + path + "'", out.error);
  return std::move(out.file);
}

}  // namespace

std::int64_t nanoseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// --- recording ---

void TimelineRecorder::add(const Tensor& tensor, std::string phase, TimePoint from, TimePoint to) {
  if (events_.empty()) first_ = to;
  events_.push_back({.start_ns = nanoseconds(from),
                     .duration_ns = nanoseconds(to) - nanoseconds(from),
                     .tensor = tensor.submission().name,
                     .phase = std::move(phase)});
}

void TimelineRecorder::ran(const Tensor& tensor, TimePoint agreed, TimePoint started, TimePoint ended) {
  add(tensor, "NEGOTIATE", tensor.submitted_at(), agreed);
  add(tensor, "QUEUE", agreed, started);
  add(tensor, upper(name_of(tensor.signature().kind)), started, ended);
}

std::optional<TimePoint> TimelineRecorder::due() const {
  if (events_.empty()) return std::nullopt;
  return events_.size() >= kBatch ? TimePoint::min() : first_ + kTimeLimit;
}

std::vector<TimelineEvent> TimelineRecorder::take() {
  if (events_.size() <= kBatch) return std::exchange(events_, {});
  const auto end = events_.begin() + static_cast<std::ptrdiff_t>(kBatch);
  std::vector<TimelineEvent> batch(std::make_move_iterator(events_.begin()), std::make_move_iterator(end));
  events_.erase(events_.begin(), end);
  return batch;
}

// --- the file ---

Result<std::unique_ptr<TimelineFile>> TimelineFile::create(const std::string& path,
                                                           const std::vector<std::string>& hosts, std::uint64_t limit) {
  auto file = open_timeline(path);
  if (!file.ok()) return file.status();
  std::unique_ptr<TimelineFile> timeline(new TimelineFile(path, *std::move(file), limit, hosts.size()));
  std::string objects;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::string name = "rank " + std::to_string(rank) + " (" + hosts[rank] + ")";
    objects += ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" + std::to_string(rank) +
               ",\"args\":{\"name\":" + json_string(name) + "}}";
  }
  DISTRUN_RETURN_IF_ERROR(timeline->append(objects));
  return timeline;
}

int TimelineFile::lane(int rank, const std::string& tensor, std::string& objects) {
  auto& lanes = lanes_.at(static_cast<std::size_t>(rank));
  const auto known = lanes.find(tensor);
  if (known != lanes.end()) return known->second;
  const int number = static_cast<int>(lanes.size());
  if (lanes.size() == kMaxLanes) return number;
  lanes.emplace(tensor, number);
  objects += ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":" + std::to_string(rank) +
             ",\"tid\":" + std::to_string(number) + ",\"args\":{\"name\":" + json_string(tensor) + "}}";
  return number;
}

Status TimelineFile::write(int rank, const std::vector<TimelineEvent>& events, std::int64_t offset_ns) {
  std::string objects;
  for (const TimelineEvent& event : events) {
    std::string one;
    const int tid = lane(rank, event.tensor, one);
    one += ",\n{\"name\":" + json_string(event.phase) + ",\"ph\":\"X\",\"pid\":" + std::to_string(rank) +
           ",\"tid\":" + std::to_string(tid) + ",\"ts\":" + microseconds(event.start_ns - offset_ns) +
           ",\"dur\":" + microseconds(event.duration_ns) + ",\"args\":{\"tensor\":" + json_string(event.tensor) + "}}";
    if (limit_ > 0 && size_ + objects.size() + one.size() + kEnd.size() > limit_) {
      DISTRUN_RETURN_IF_ERROR(append(objects));
      return end_at_limit(event.start_ns - offset_ns);
    }
    objects += one;
  }
  return append(objects);
}

Status TimelineFile::end_at_limit(std::int64_t at_ns) {
  const std::string why = "has reached timeline_max_size (" + show_bytes(limit_) +
                          "). For another limit use --timeline-max-size; 0 means none";
  DISTRUN_RETURN_IF_ERROR(mark("THE TIMELINE ENDS HERE", "the file " + why, at_ns));
  return {Errc::kSystem, "timeline: '" + path_ + "' " + why};
}

Status TimelineFile::mark(const std::string& name, const std::string& why, std::int64_t at_ns) {
  return append(",\n{\"name\":" + json_string(name) + ",\"ph\":\"i\",\"s\":\"g\",\"pid\":0,\"tid\":0,\"ts\":" +
                microseconds(at_ns) + ",\"args\":{\"why\":" + json_string(why) + "}}");
}

// `objects` begin with a comma, which is removed for the first objects of the file.
Status TimelineFile::append(const std::string& objects) {
  std::string text =
      size_ > 0 ? objects : std::string(kStart) + objects.substr(std::min<std::size_t>(1, objects.size()));
  text += kEnd;
  const auto end = static_cast<off_t>(size_);
  ::lseek(file_.get(), end, SEEK_SET);  // fails for a pipe, where written bytes stay
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(file_.get(), left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      const Status failed = errno_status("timeline: cannot write '" + path_ + "'", errno);
      // The end still fits at its old position.
      if (::pwrite(file_.get(), kEnd.data(), kEnd.size(), end) == static_cast<ssize_t>(kEnd.size())) {
        [[maybe_unused]] const int cut = ::ftruncate(file_.get(), end + static_cast<off_t>(kEnd.size()));
      }
      return failed;
    }
  }
  size_ += text.size() - kEnd.size();
  return {};
}

// --- clocks ---

bool ClockOffset::measured(std::int64_t sent, std::int64_t there, std::int64_t received) {
  const std::int64_t trip = received - sent;
  if (trip >= 0 && (shortest_ < 0 || trip < shortest_)) {
    shortest_ = trip;
    found_ = there - (sent + trip / 2);
  }
  last_ = received;
  const bool more = ++rounds_ < kRounds;
  if (!more || !known_) offset_ = found_;
  return more;
}

}  // namespace distrun::engine
