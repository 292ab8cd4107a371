// The version of this build, set by CMake.
#pragma once

namespace distrun::launcher {
#if !defined(DISTRUN_VERSION)
#error "DISTRUN_VERSION comes from launcher/CMakeLists.txt"
#endif
inline constexpr char kVersion[] = DISTRUN_VERSION;
}  // namespace distrun::launcher
