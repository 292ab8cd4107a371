#include "runtime/api/describe.h"

#include "runtime/backend/plugin/describe.h"
#include "runtime/base/settings.h"

namespace distrun::api {
namespace {

std::string describe_settings() {
  const auto report = read_settings(process_environment(), {});
  return report.ok() ? start_up_line(*report) : report.status().message();
}

std::string describe_backends() {
  const auto report = read_settings(process_environment(), {});
  return report.ok() ? backend::describe_backends(report->settings) : report.status().message();
}

}  // namespace

std::string describe_without_session(const std::string& what) {
  if (what == "settings") return describe_settings();
  if (what == "backends") return describe_backends();
  return "";
}

}  // namespace distrun::api
