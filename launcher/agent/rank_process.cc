#include "launcher/agent/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/clock.h"

namespace distrun::launcher {
namespace {

// If memory runs out, the kernel prefers to kill a rank rather than its agent.
constexpr int kOomScoreAdd = 100;
constexpr unsigned char kEndOfInput = 4;  // Ctrl-D

std::vector<std::string> environment_of(const RankPlan& plan, const RankSetting& setting) {
  Environment all = setting.common->environment;
  for (const auto& [name, value] : plan.environment) all[name] = value;
  if (!plan.tf_task.empty()) all["TF_CONFIG"] = std::string(setting.tf_cluster) + plan.tf_task;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

// The smallest pipe. It has room again only when the reader has taken all bytes, so POLLOUT tells when the program
// asks for more. A larger pipe would still work: then more input is passed on than the program has asked for.
void make_smallest(int pipe) { ::fcntl(pipe, F_SETPIPE_SZ, 1); }

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

Result<RankProcess> RankProcess::start(const RankPlan& plan, const RankSetting& setting, Fd key) {
  RankProcess out;
  out.rank_ = plan.rank;
  ProcessSpec spec;
  out.program_ = plan.serves ? setting.server : setting.program;
  spec.program = out.program_;
  spec.argv = plan.serves ? setting.common->server : setting.common->command;
  spec.environment = environment_of(plan, setting);
  spec.cwd = setting.common->cwd;
  spec.cpus = plan.cpus;
  spec.umask = setting.common->umask;
  spec.open_files = setting.common->open_files;
  spec.oom_score_add = kOomScoreAdd;
  spec.die_with_parent = true;
  spec.cgroup = setting.cgroup;
  spec.ignore_quit = setting.ignore_quit;
  spec.controlling_terminal = plan.input == RankInput::kTerminal;
  // These are the child's ends; this process closes its copies when this function returns.
  std::vector<Fd> theirs;
  DISTRUN_RETURN_IF_ERROR(out.connect(plan.input, theirs));
  for (int i = 0; i < 3; ++i) spec.descriptors.emplace_back(theirs[static_cast<std::size_t>(i)].get(), i);
  spec.descriptors.emplace_back(key.get(), setting.key_fd);
  if (setting.mpi_fd >= 0) spec.descriptors.emplace_back(setting.mpi_fd, setting.mpi_fd);
  auto lifeline = make_pipe();
  if (!lifeline.ok()) return lifeline.status();
  spec.lifeline = std::max(setting.key_fd, setting.mpi_fd) + 1;
  spec.descriptors.emplace_back(lifeline->first.get(), spec.lifeline);
  out.lifeline_ = std::move(lifeline->second);
  auto process = start_process(spec);
  if (!process.ok()) return process.status();
  out.process_ = *std::move(process);
  return out;
}

Status RankProcess::connect(RankInput input, std::vector<Fd>& theirs) {
  if (input == RankInput::kTerminal) return open_terminal(theirs);
  if (input == RankInput::kPipe) {
    auto pipe = make_pipe();
    if (!pipe.ok()) return pipe.status();
    input_fd_ = std::move(pipe->second);
    set_nonblocking(input_fd_.get());
    make_smallest(input_fd_.get());
    theirs.push_back(std::move(pipe->first));
  } else {
    theirs.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  for (Stream& stream : streams_) {
    auto pipe = make_pipe();
    if (!pipe.ok()) return pipe.status();
    stream.fd = std::move(pipe->first);
    set_nonblocking(stream.fd.get());
    theirs.push_back(std::move(pipe->second));
  }
  return {};
}

Status RankProcess::open_terminal(std::vector<Fd>& theirs) {
  constexpr char kWhat[] = "--tty: make a pseudoterminal";
  Fd ours(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[64];
  if (!ours.valid() || ::grantpt(ours.get()) != 0 || ::unlockpt(ours.get()) != 0 ||
      ::ptsname_r(ours.get(), name, sizeof name) != 0) {
    return errno_status(kWhat, errno);
  }
  for (int i = 0; i < 3; ++i) {
    theirs.emplace_back(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!theirs.back().valid()) return errno_status(kWhat, errno);
  }
  set_nonblocking(ours.get());
  streams_[0].fd.reset(::fcntl(ours.get(), F_DUPFD_CLOEXEC, 0));
  if (!streams_[0].fd.valid()) return errno_status(kWhat, errno);
  input_fd_ = std::move(ours);
  terminal_ = true;
  return {};
}

void RankProcess::resize(const Window& window) const {
  if (!terminal_ || !input_fd_.valid()) return;
  winsize size{};
  size.ws_row = window.rows;
  size.ws_col = window.columns;
  ::ioctl(input_fd_.get(), TIOCSWINSZ, &size);
}

void RankProcess::watch(Poller& poller, const OnOutput& on_output) {
  for (std::uint8_t i = 0; i < streams_.size(); ++i) {
    if (!streams_[i].fd.valid() || streams_[i].credit == 0) continue;
    poller.watch(streams_[i].fd.get(), POLLIN, [this, i, on_output](short) { read_stream(i, on_output); });
  }
  if (input_fd_.valid() && (!input_.empty() || input_unread_ > 0)) {
    poller.watch(input_fd_.get(), POLLOUT, [this](short events) { on_input(events); });
  }
}

void RankProcess::add_credit(std::uint8_t stream, std::uint32_t bytes) {
  Stream& s = streams_.at(stream);
  s.credit = std::min(kStreamWindow, s.credit + std::min(bytes, kStreamWindow));
}

void RankProcess::read_stream(std::uint8_t index, const OnOutput& on_output) {
  Stream& stream = streams_[index];
  if (!stream.fd.valid() || stream.credit == 0) return;
  StreamBytes out{.rank = rank_, .stream = index, .bytes = std::vector<std::byte>(stream.credit)};
  const ssize_t n = ::read(stream.fd.get(), out.bytes.data(), out.bytes.size());
  stream.empty = n < 0 && errno == EAGAIN;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    stream.fd.reset();
    return;
  }
  out.bytes.resize(static_cast<std::size_t>(n));
  const Duration since = Clock::now().time_since_epoch();
  out.when = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
  stream.credit -= static_cast<std::uint32_t>(n);
  read_any_ = true;
  on_output(out);
}

void RankProcess::add_input(const std::vector<std::byte>& bytes) {
  if (!takes_input()) return;
  input_.insert(input_.end(), bytes.begin(), bytes.end());
  write_input();
}

void RankProcess::end_input() {
  if (!takes_input()) return;
  // A terminal has no end of file except this character.
  if (terminal_) input_.push_back(std::byte{kEndOfInput});
  input_ended_ = true;
  write_input();
}

// A terminal does not tell what the program has read.
void RankProcess::count_input() {
  int unread = 0;
  if (terminal_ || !input_fd_.valid() || ::ioctl(input_fd_.get(), FIONREAD, &unread) != 0) return;
  input_unread_ = static_cast<std::uint64_t>(std::max(unread, 0));
}

void RankProcess::on_input(short events) {
  if (!terminal_) {
    count_input();
    if ((events & POLLERR) != 0) return close_input();
    // A kernel whose pipes have room for more (gVisor). The bytes count as read.
    if (input_.empty()) input_unread_ = 0;
  }
  write_input();
}

// The program has closed its standard input; the rest of the input is dropped.
void RankProcess::close_input() {
  count_input();
  input_.clear();
  input_fd_.reset();
}

void RankProcess::write_input() {
  while (!input_.empty()) {
    const ssize_t n = ::write(input_fd_.get(), input_.data(), input_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return close_input();
    input_written_ += static_cast<std::uint64_t>(n);
    if (!terminal_) input_unread_ += static_cast<std::uint64_t>(n);
    input_.erase(input_.begin(), input_.begin() + n);
  }
  // A terminal stays open, because closing it would end the program.
  if (input_ended_ && !terminal_) input_fd_.reset();
}

bool RankProcess::wrote() const {
  const auto has_bytes = [](const Stream& stream) {
    int bytes = 0;
    return stream.fd.valid() && ::ioctl(stream.fd.get(), FIONREAD, &bytes) == 0 && bytes > 0;
  };
  return read_any_ || std::any_of(streams_.begin(), streams_.end(), has_bytes);
}

bool RankProcess::drained() const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return !stream.fd.valid() || stream.empty; });
}

bool RankProcess::closed() const {
  return std::none_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.fd.valid(); });
}

void RankProcess::drain(const OnOutput& on_output, bool last) {
  for (std::uint8_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    stream.empty = false;
    while (stream.fd.valid() && stream.credit > 0 && !stream.empty) read_stream(i, on_output);
    if (last && stream.empty) stream.fd.reset();
  }
}

}  // namespace distrun::launcher
