// Where this installation has its parts, seen from the distrun program: a build tree, an install prefix, or a wheel.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::launcher {

std::string own_program();   // the file behind /proc/self/exe
std::string library_path();  // libdistrun.so, or empty; of several installations that of the last
// That one first, and those of older installations beside the same program.
std::vector<std::string> libraries();
std::string include_directory();  // with distrun/distrun.h below it, or empty
// For --cflags and --libs; an error says where the header or the library was looked for.
Result<std::string> compiler_flags();
Result<std::string> linker_flags();

}  // namespace distrun::launcher
