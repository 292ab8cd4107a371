// The backends that a setting names. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/settings.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// The names in a value of the setting `backend`: "tcp", or "cpu:tcp,cuda:nccl".
std::vector<std::string> backends_in(std::string_view setting);
// The backend of a plug-in by the name of its file, libdistrun_backend_NAME.so. Empty for another file.
std::string backend_of_file(std::string_view path);

// Refuses a backend that no rank has. `found`: the plug-ins of this installation; those that the setting `plugins`
// names are known too.
Status check_backend(const Settings& settings, const std::vector<std::string>& found);

}  // namespace distrun::launcher
