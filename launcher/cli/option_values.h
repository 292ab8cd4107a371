// How the text of an option becomes its value, and which options go together. Errors name the option, its text and what
// is allowed. Pure, and without the command-line library.
#pragma once

#include <set>
#include <string>

#include "launcher/options.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Each takes the option's name and its text.
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

// Refuses what does not go together, and fills in what options imply. `given`: names of the options that the command
// line or the config file has.
Status complete_options(const std::set<std::string>& given, Options& out);
// Options of the command line that would have no effect beside others; what a config file has may be for other jobs.
Status check_typed(const std::set<std::string>& typed, const Options& options);

}  // namespace distrun::launcher
