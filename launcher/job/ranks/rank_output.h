// The interface through which a job's states show the output of ranks and the messages of distrun.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/report/lines/last_exception.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class RankOutput {
 public:
  virtual ~RankOutput() = default;
  virtual void print(const std::string& text) = 0;
  virtual void write(const StreamBytes& bytes, TimePoint now) = 0;
  virtual void finish(int rank, TimePoint now) = 0;  // this rank writes no more
  virtual void failed(int rank) = 0;                 // this rank has exited with an error
  // Keeps back the standard error of this rank: its error follows from another rank.
  virtual void keep_back(int rank) = 0;
  // Keeps back the standard error of all ranks but this one; -1: of all. Shows what was kept back of this one.
  virtual void keep_back_all_but(int rank) = 0;
  virtual void show_kept_back(int rank, TimePoint now) = 0;  // -1: of all ranks
  // Ctrl-C has interrupted these ranks before they used the runtime.
  virtual void fold_interrupts(const std::vector<int>& ranks) = 0;
  // Those of them that were loading libraries.
  [[nodiscard]] virtual std::vector<int> interrupted() const = 0;
  [[nodiscard]] virtual std::vector<std::string> last_lines(int rank) const = 0;
  // True if the user has just seen these lines on the screen.
  [[nodiscard]] virtual bool shows_last_lines(int rank) = 0;
  [[nodiscard]] virtual std::string last_word(int rank) const = 0;
  [[nodiscard]] virtual std::optional<RaisedException> last_exception(int rank) const = 0;
};

}  // namespace distrun::launcher
