// The output of a job as its states use it. It is opened again when the ranks are known.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/ranks/rank_output.h"
#include "launcher/report/output.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"

namespace distrun::launcher {

class Screen final : public RankOutput {
 public:
  // The new output also writes what an earlier one has not written yet.
  Status open(const OutputConfig& config) {
    auto output = Output::create(config);
    if (!output.ok()) return output.status();
    if (output_) (*output)->follow(*output_);
    output_ = *std::move(output);
    return {};
  }
  // Waits for readers and disks without a limit, as the last write of any program does. A signal that asks for the end
  // makes it give up.
  void flush(Poller& poller, SignalSource& signals);
  Output* operator->() { return output_.get(); }
  const Output* operator->() const { return output_.get(); }

  void print(const std::string& text) override { output_->print(text); }
  void write(const StreamBytes& bytes, TimePoint now) override { output_->write(bytes, now); }
  void finish(int rank, TimePoint now) override { output_->finish(rank, now); }
  void failed(int rank) override { output_->errors().failed(rank); }
  void keep_back(int rank) override { output_->errors().keep_back(rank); }
  void keep_back_all_but(int rank) override {
    output_->show_errors({{.rank = rank, .pieces = output_->errors().keep_back_all_but(rank)}}, Clock::now());
  }
  void show_kept_back(int rank, TimePoint now) override { output_->show_errors(output_->errors().release(rank), now); }
  void fold_interrupts(const std::vector<int>& ranks) override { output_->errors().fold_interrupts(ranks); }
  [[nodiscard]] std::vector<int> interrupted() const override { return output_->errors().interrupted(); }
  [[nodiscard]] std::vector<std::string> last_lines(int rank) const override { return output_->last_lines().of(rank); }
  [[nodiscard]] bool shows_last_lines(int rank) override { return output_->shows_last_lines(rank, Clock::now()); }
  [[nodiscard]] std::string last_word(int rank) const override { return output_->last_lines().most_informative(rank); }
  [[nodiscard]] std::optional<RaisedException> last_exception(int rank) const override {
    return output_->last_lines().exception(rank);
  }

 private:
  std::unique_ptr<Output> output_;
};

}  // namespace distrun::launcher
