// Distinguishes builds of one version. Made by cmake/DistrunBuildId.cmake.
#pragma once

#include <string_view>

namespace distrun::api {

// Equal for equal sources under runtime/, no matter where they are compiled.
std::string_view build_id();

}  // namespace distrun::api
