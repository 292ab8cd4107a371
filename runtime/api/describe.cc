#include "runtime/api/describe.h"

#include "runtime/backend/plugin/describe.h"
#include "runtime/base/settings.h"

namespace distrun::api {

std::string describe_without_session(const std::string& what) {
  if (what == "why.json") return "[]";
  if (what != "settings" && what != "backends" && what != "backends.json") return "";
  const auto report = read_settings(process_environment(), {});
  if (!report.ok()) return report.status().message();
  if (what == "settings") return start_up_line(*report);
  const backend::BackendList list = backend::list_backends(report->settings);
  return what == "backends" ? backend::to_text(list) : backend::to_json(list);
}

}  // namespace distrun::api
