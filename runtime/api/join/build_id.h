// Tells builds of one version apart. Made by cmake/DistrunBuildId.cmake.
#pragma once

#include <string_view>

namespace distrun::api {

// The same for the same sources under runtime/, whoever compiles them.
std::string_view build_id();

}  // namespace distrun::api
