// Parses files of variables (--env-file). Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Reads the lines of a unix_text(). "NAME=value" as docker reads it: the value is the rest of the line. Quotes around
// the whole value are removed. A line with `export` is read as a shell reads it; what only a shell could do is an
// error. "NAME" alone stands for the user's own value. Skips comments and blank lines.
Result<std::vector<std::pair<std::string, std::string>>> parse_env_file(std::string_view text, const std::string& file,
                                                                        const Environment& user);

}  // namespace distrun::launcher
