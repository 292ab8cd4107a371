#include "runtime/base/environment.h"

#include <unistd.h>

#include <cstddef>
#include <string_view>

namespace distrun {

Environment process_environment() {
  Environment out;
  for (char** item = environ; item != nullptr && *item != nullptr; ++item) {
    const std::string_view line(*item);
    const std::size_t equals = line.find('=');
    // The first entry of a name wins, as in getenv.
    if (equals != std::string_view::npos) out.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return out;
}

}  // namespace distrun
