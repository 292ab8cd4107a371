// --report FILE: how a job ended, for programs. docs/launch.md has the format.
#pragma once

#include <optional>
#include <string>

#include "launcher/report/failure_report.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Counts up when a field changes its meaning or goes; a new field does not change it.
inline constexpr int kReportFormat = 1;

// One JSON object. Without a failure its cause is null.
std::string report_json(const std::optional<FailureReport>& failure, int exit_code);

// What is wrong with this path, as far as that is known before the job starts. Makes a file beside it for a moment.
Status check_report_path(const std::string& path);
// That of an earlier job, which a reader could take for this one's.
void remove_report(const std::string& path);
// Beside the file first, so that a reader sees the whole of it. Of a link the file that it names is written.
Status write_report(const std::string& path, const std::string& text);

}  // namespace distrun::launcher
