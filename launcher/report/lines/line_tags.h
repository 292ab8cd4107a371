// The tag before a line: its time, the ranks that wrote it, and their host. Pure except for the wall clock.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class LineTags {
 public:
  // `hosts`: by rank.
  LineTags(const OutputOptions& options, std::vector<std::string> hosts)
      : style_(options.tag), timestamp_(options.timestamp), hosts_(std::move(hosts)) {}

  [[nodiscard]] std::string tag(const std::vector<int>& ranks, bool colour) const;
  // The time of a line that was written `ago`. Empty without --timestamp.
  [[nodiscard]] std::string stamp(Duration ago) const;

 private:
  TagStyle style_;
  bool timestamp_;
  std::vector<std::string> hosts_;
};

}  // namespace distrun::launcher
