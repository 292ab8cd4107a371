// Finds the parts of this installation, relative to the distrun program. It may be a build tree, an install prefix or a
// wheel.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace distrun::launcher {

std::string own_program();   // the file that this process runs
std::string library_path();  // libdistrun.so of the newest installation, or empty
// All of them: library_path() first, then those of older installations that share this program's folder.
std::vector<std::string> libraries();
// The files in the folder `plugins` beside library_path().
std::vector<std::string> plug_in_files();
std::string include_directory();  // contains distrun/distrun.h; or empty
// For --cflags and --libs. The error lists the folders that were searched for the header or the library.
Result<std::string> compiler_flags();
Result<std::string> linker_flags();

}  // namespace distrun::launcher
