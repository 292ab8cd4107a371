// Asks a Python, before any rank starts, whether it has the module of `python -m module`. Also defines how distrun's
// own modules are run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"

namespace distrun::launcher {

// The words after `python` that run one of distrun's own modules. They do not use -m: Python would then look for the
// module and its imports in the working directory first, where any file may lie. The words after these are the module's
// arguments.
std::vector<std::string> our_module(const std::string& module);

// The command to run instead of the program, with the same options of Python. Its script looks for the module and
// imports nothing.
struct ModuleQuestion {
  std::string module;
  std::vector<std::string> argv;
};
// None if the command is neither `python [options] -m module` nor runs a module of distrun. Pure.
std::optional<ModuleQuestion> module_question(const std::vector<std::string>& command);

// Blocks for at most 10 s. Only a Python that clearly reports the module as missing is a reason not to start.
std::optional<Refused> missing_module(const JobCommon& common, const std::string& python, const std::string& host);

}  // namespace distrun::launcher
