#include "runtime/api/describe.h"

#include "runtime/backend/builtin/builtin.h"
#include "runtime/base/settings.h"

namespace distrun::api {
namespace {

std::string describe_settings() {
  const auto report = read_settings(process_environment(), {});
  return report.ok() ? start_up_line(*report) : report.status().message();
}

// The built-in backends need nothing from outside, so what is in the list is there.
std::string describe_backends() {
  std::string text;
  for (const auto& factory : backend::builtin_factories()) text += std::string(factory->name()) + ": ok\n";
  return text;
}

}  // namespace

std::string describe_without_session(const std::string& what) {
  if (what == "settings") return describe_settings();
  if (what == "backends") return describe_backends();
  return "";
}

}  // namespace distrun::api
