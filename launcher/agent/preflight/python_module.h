// Whether the module of `python -m module` is there, asked of that Python before any rank starts; and how modules of
// ours are run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"

namespace distrun::launcher {

// Behind `python`: runs a module of ours. Not by -m, for then it and all that it imports would be looked for in the
// working directory first, which may be anybody's. What is behind these words are the module's arguments.
std::vector<std::string> our_module(const std::string& module);

// What to run instead of the program, whose own options stay: a script that looks for the module and imports nothing.
struct ModuleQuestion {
  std::string module;
  std::vector<std::string> argv;
};
// Nothing where the command is neither `python [options] -m module` nor has a module of ours. Pure.
std::optional<ModuleQuestion> module_question(const std::vector<std::string>& command);

// Blocks, for 10 s at most. Only a Python that says clearly that it has no such module is a reason not to start.
std::optional<Refused> missing_module(const JobCommon& common, const std::string& python, const std::string& host);

}  // namespace distrun::launcher
