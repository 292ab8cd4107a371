// `distrun check`: what this machine and this installation have.
#pragma once

#include <string>
#include <vector>

namespace distrun::launcher {

// `arguments` behind the word check. Prints; returns the exit code.
int check_main(const std::vector<std::string>& arguments);

}  // namespace distrun::launcher
