// Converts the text of an option to its value, and checks which options go together. Errors name the option, its text
// and the allowed values. Pure; does not use the command-line library.
#pragma once

#include <set>
#include <string>

#include "launcher/options.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Each function takes the name of the option and its text.
Status read_ranks(const std::string& option, const std::string& text, int& out);
Status read_gpus(const std::string& option, const std::string& text, int& out);
Status read_port(const std::string& option, const std::string& text, int& out);
Status read_stdin(const std::string& option, const std::string& text, InputRequest& out);
Status read_tty(const std::string& option, const std::string& text, InputRequest& out);
Status read_seconds(const std::string& option, const std::string& text, double& out);
Status read_network(const std::string& option, const std::string& text, NetworkFilter& out);
Status read_listen(const std::string& option, const std::string& text, std::string& out);
Status read_choice(const std::string& option, const std::string& text, BindTo& out);
Status read_choice(const std::string& option, const std::string& text, GpuVisibility& out);
Status read_choice(const std::string& option, const std::string& text, EnvMode& out);
Status read_choice(const std::string& option, const std::string& text, Mimic& out);
Status read_choice(const std::string& option, const std::string& text, TagStyle& out);

// Returns an error for options that exclude each other, and sets what options imply. `given` has the names of all
// options on the command line and in the config file.
Status complete_options(const std::set<std::string>& given, Options& out);
// Returns an error for options on the command line that another option makes useless. Those of a config file are
// allowed, since the file may serve several jobs.
Status check_typed(const std::set<std::string>& typed, const Options& options);

}  // namespace distrun::launcher
