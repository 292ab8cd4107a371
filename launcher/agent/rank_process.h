// One rank on this host: its process, its two output streams with their credit, and its standard input.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/process.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

// Settings that all ranks of one host share.
struct RankSetting {
  const JobCommon* common = nullptr;
  std::string_view tf_cluster;  // the beginning of every TF_CONFIG
  std::string program;
  std::string server;  // the program of ranks that serve
  std::string cgroup;
  bool ignore_quit = false;  // ranks start with SIGQUIT ignored
  int key_fd = 3;
  int mpi_fd = -1;  // PMI's descriptor; it has the same number in the rank
};

class RankProcess {
 public:
  // `key` is a sealed descriptor for this rank alone.
  static Result<RankProcess> start(const RankPlan& plan, const RankSetting& setting, Fd key);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const std::string& program() const { return program_; }
  Process& process() { return process_; }
  [[nodiscard]] const Process& process() const { return process_; }

  using OnOutput = std::function<void(const StreamBytes&)>;
  // Watches the output streams that have credit, and the input while the program has not read all of it.
  void watch(Poller& poller, const OnOutput& on_output);
  void add_credit(std::uint8_t stream, std::uint32_t bytes);

  // Input for the program, if it gets any.
  void add_input(const std::vector<std::byte>& bytes);
  void end_input();
  [[nodiscard]] bool takes_input() const { return input_fd_.valid() && !input_ended_; }
  // How many bytes the program has read, as far as is known: watch() notices when it has read all.
  [[nodiscard]] std::uint64_t input_read() const { return input_written_ - input_unread_; }
  void count_input();  // asks the kernel
  // Sets the size of this rank's terminal to that of the user's, if it has one.
  void resize(const Window& window) const;

  // It has written something, which may still be in a pipe.
  [[nodiscard]] bool wrote() const;
  // Both streams are at end of file, or the last read found nothing.
  [[nodiscard]] bool drained() const;
  // Both streams are at end of file.
  [[nodiscard]] bool closed() const;
  // Reads the available output without blocking, within the credit. `last`: no process is left that could write, so an
  // empty pipe is treated as end of file.
  void drain(const OnOutput& on_output, bool last);

 private:
  struct Stream {
    Fd fd;
    std::uint32_t credit = kStreamWindow;
    bool empty = false;  // the last read found nothing
  };
  void read_stream(std::uint8_t stream, const OnOutput& on_output);
  void write_input();
  void on_input(short events);
  void close_input();
  Status connect(RankInput input, std::vector<Fd>& theirs);
  Status open_terminal(std::vector<Fd>& theirs);

  int rank_ = -1;
  std::string program_;
  Process process_;
  Fd lifeline_;  // if this end closes, even because this process is killed, the kernel kills the rank's process group
  std::array<Stream, 2> streams_;
  bool read_any_ = false;  // of its output
  Fd input_fd_;
  std::vector<std::byte> input_;     // not written yet
  std::uint64_t input_written_ = 0;  // bytes
  std::uint64_t input_unread_ = 0;   // of those, still in the pipe
  bool input_ended_ = false;
  bool terminal_ = false;  // input_fd_ and the first stream are the two directions of one terminal
};

}  // namespace distrun::launcher
