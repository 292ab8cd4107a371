// Where this installation has its parts, seen from the distrun program: a build tree, an install prefix, or a wheel.
#pragma once

#include <string>
#include <vector>

namespace distrun::launcher {

std::string own_program();        // the file behind /proc/self/exe
std::string library_path();       // libdistrun.so, or empty
std::string include_directory();  // with distrun/distrun.h below it, or empty
std::string compiler_flags();     // for --cflags
std::string linker_flags();       // for --libs

}  // namespace distrun::launcher
