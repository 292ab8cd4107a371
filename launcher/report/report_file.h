// --report FILE: how a job ended, for programs. docs/reference/report-file.md has the format.
#pragma once

#include <optional>
#include <string>

#include "launcher/report/failure_report.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Incremented when a field is removed or changes its meaning. A new field does not change it.
inline constexpr int kReportFormat = 1;

// Returns one JSON object. Without a failure its cause is null.
std::string report_json(const std::optional<FailureReport>& failure, int exit_code);

// Checks the path as far as possible before the job starts. Makes a file beside it for a moment.
Status check_report_path(const std::string& path);
// Removes the report of an earlier job, because a reader could confuse it with the report of this job.
void remove_report(const std::string& path);
// Writes a temporary file beside the report and renames it, so that a reader never sees a part. If the path is a link,
// writes the file that it points to.
Status write_report(const std::string& path, const std::string& text);

}  // namespace distrun::launcher
