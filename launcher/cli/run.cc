#include "launcher/cli/run.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "launcher/agent/preflight/preflight.h"
#include "launcher/agent/preflight/python_module.h"
#include "launcher/agent/preflight/scan.h"
#include "launcher/cli/copies.h"
#include "launcher/cli/explain.h"
#include "launcher/cli/host_source.h"
#include "launcher/cli/paths.h"
#include "launcher/cli/program.h"
#include "launcher/cli/text_file.h"
#include "launcher/exit_codes.h"
#include "launcher/job/job.h"
#include "launcher/job/start/dial_in.h"
#include "launcher/job/start/mpi_start.h"
#include "launcher/plan/backends.h"
#include "launcher/plan/environment/env_file.h"
#include "launcher/plan/hosts/pasted.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/protection.h"
#include "launcher/plan/schedulers/slurm.h"
#include "launcher/report/report_file.h"
#include "runtime/base/settings.h"
#include "runtime/net/host/host_candidates.h"
#include "runtime/net/identity/key_file.h"

namespace distrun::launcher {
namespace {

int refuse(const Status& status, int code) {
  const std::string text = printable_lines(status.message());
  std::fprintf(stderr, "distrun: %s%s\n", text.c_str(), note_on_pasted(status.message()).c_str());
  return code;
}

std::string new_job_id() {
  unsigned char bytes[8] = {};
  [[maybe_unused]] const ssize_t n = ::getrandom(bytes, sizeof bytes, 0);  // up to 256 bytes never fail
  std::string out;
  for (const unsigned char byte : bytes) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    out += hex;
  }
  return out;
}

Result<std::string> working_directory(const Environment& environment) {
  // As the shell shows it, which may be through links, if that is still the same folder.
  struct stat a {};
  struct stat b {};
  const auto pwd = environment.find("PWD");
  if (pwd != environment.end() && pwd->second.starts_with('/') && ::stat(pwd->second.c_str(), &a) == 0 &&
      ::stat(".", &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
    return pwd->second;
  }
  char path[PATH_MAX];
  if (::getcwd(path, sizeof path) != nullptr) return std::string(path);
  return Status(Errc::kInvalidArgument, std::string("this folder has no path, so ranks cannot run in it: ") +
                                            std::strerror(errno) + ". Has it been removed? cd to another one");
}

Result<BaseEnvironment> read_environment(const Options& options, const Environment& environment) {
  std::vector<std::pair<std::string, std::string>> from_file;
  if (const std::string& file = options.environment.file; !file.empty()) {
    auto text = read_text(file);
    if (!text.ok()) return text.status().with_context("--env-file");
    auto variables = parse_env_file(*text, file, environment);
    if (!variables.ok()) return variables.status();
    from_file = *std::move(variables);
  }
  BaseEnvironment base = base_environment(environment, options.environment, from_file);
  if (const auto port = named_master_port(base); !port.ok()) return port.status();
  // Refuse a bad value once here, instead of once in every rank.
  const auto report = read_settings(base.variables, {});
  if (!report.ok()) return report.status();
  base.notes.insert(base.notes.end(), report->warnings.begin(), report->warnings.end());
  std::string warned;
  for (const std::string& name : report->unknown) warned += (warned.empty() ? "" : " ") + name;
  if (!warned.empty()) base.variables["DISTRUN_WARNED"] = warned;
  return base;
}

void take_settings(const Environment& variables, JobConfig& config) {
  const auto report = read_settings(variables, {});
  if (!report.ok()) return;
  const std::string& name = report->settings.preempt_signal;
  config.preempt_signal = name == "TERM" ? SIGTERM : name == "USR1" ? SIGUSR1 : name == "USR2" ? SIGUSR2 : 0;
  config.host_timeout = report->settings.host_timeout;
  config.start_timeout = report->settings.start_timeout;
  // Applies only if the user set it. The default is longer than most users want to wait for a host that hangs.
  if (report->sources.at("start_timeout") == "default") return;
  config.start.answer = duration_of(report->settings.start_timeout);
  config.start.keep_trying = true;
}

// A job, or the result of one that ended before it began.
struct PreparedJob {
  JobConfig config;
  std::unique_ptr<AgentSpawner> spawner;
  std::vector<std::string> own_names{};  // as in HostSource
  std::optional<JobResult> refused{};
};

std::string timeout_option(const Options& options) {
  return "--timeout of " + seconds_text(options.end.timeout) + " s";
}

// Waits for the agents of --agents, whose hosts become the hosts of the job.
Result<HostSource> await_agents(const Options& options, DialIn& dial_in, const JobConfig& config) {
  std::fprintf(stderr, "distrun: waiting for %s at %s\n",
               counted(static_cast<std::size_t>(options.hosts.agents), "agent").c_str(), dial_in.address().c_str());
  const TimePoint limit = deadline_after(config.start_timeout);
  const bool whole_job = config.end_by && *config.end_by <= limit;
  const Status come = dial_in.wait(static_cast<std::size_t>(options.hosts.agents), whole_job ? *config.end_by : limit);
  if (come.code() == Errc::kTimeout && whole_job) return come.with_context(timeout_option(options));
  if (come.code() == Errc::kTimeout) {
    return Status(Errc::kSystem, "not all agents came within " + seconds_text(config.start_timeout) +
                                     " s (--start-timeout): " + come.message());
  }
  if (!come.ok()) return come;
  HostSource out;
  for (const std::string& host : dial_in.hosts()) {
    const bool one_more = static_cast<int>(out.hosts.size()) < options.placement.ranks % options.hosts.agents;
    const int even = options.placement.ranks / options.hosts.agents + (one_more ? 1 : 0);
    out.hosts.push_back({.name = host});
    if (options.placement.ranks_per_host > 0) {
      out.hosts.back().slots = options.placement.ranks_per_host;
    } else if (options.placement.ranks > 0) {
      out.hosts.back().slots = even;
    }
  }
  out.found = counted(static_cast<std::size_t>(options.hosts.agents), "agent") +
              (options.hosts.agents == 1 ? " has" : " have") + " connected";
  return out;
}

JobResult not_started(const Status& status, int code) {
  const auto kind = code == exit_code::kTimeout ? CauseKind::kTimedOut : CauseKind::kNotStarted;
  return {.exit_code = refuse(status, code),
          .failure = FailureReport{.cause = {.kind = kind, .text = status.message()}}};
}

PreparedJob refused(const Status& status, int code) { return {.refused = not_started(status, code)}; }

PreparedJob interrupted(const Status& status, int signal) {
  const int code = refuse(status, exit_code::kSignalBase + signal);
  const Cause cause{.kind = CauseKind::kInterrupted, .signal = signal};
  return {.refused = JobResult{.exit_code = code, .failure = FailureReport{.cause = cause}}};
}

// True if the hosts of the job must be asked how many ranks they can take.
bool must_ask(const Options& options, const HostSource& source) {
  return options.placement.ranks_per_host == 0 &&
         std::any_of(source.hosts.begin(), source.hosts.end(), [&](const HostSlots& host) {
           return !host.slots && !names_this_machine(host.name, host.user, source.own_names);
         });
}

// The hardware as ranks on this machine would find it.
Topology topology_here(const Options& options, const BaseEnvironment& base) {
  Topology out = scan_topology(options.placement.sysroot);
  out.visible_devices = visible_devices(base.variables);
  return out;
}

Result<Assignment> place_ranks(const Options& options, const HostSource& source, const BaseEnvironment& base) {
  const bool needs_topology =
      std::any_of(source.hosts.begin(), source.hosts.end(), [](const HostSlots& host) { return !host.slots; });
  std::vector<HostSlots> hosts = source.hosts;
  OwnSlots own;
  bool as_here = false;
  if (needs_topology) {
    const Topology here = topology_here(options, base);
    own = own_slots(here, options.placement);
    if (options.placement.ranks_per_host == 0 && gpu_pool(here).empty()) as_here = count_no_gpus(hosts);
  }
  AssignRequest request{.hosts = std::move(hosts),
                        .named = options.hosts.named(),
                        .placement = options.placement,
                        .more_slots = source.more_slots};
  request.default_slots = own.count;
  request.default_slots_reason = own.why;
  // Only --explain gets here without having asked the hosts.
  if (must_ask(options, source))
    request.default_slots_reason += " on this machine; the job will ask each host for its own";
  auto assignment = assign(request);
  if (!assignment.ok()) return assignment;
  if (!source.found.empty() && !options.explain.empty())
    assignment->reasons.insert(assignment->reasons.begin(), source.found);
  if (!source.left_out.empty() && !options.explain.empty()) assignment->reasons.push_back(source.left_out);
  if (as_here && must_ask(options, source)) {
    assignment->reasons.push_back(
        "hosts without a slot count have the slots of a host without GPUs, because this machine "
        "has none; the job will ask each host for its own");
  }
  if (!source.elsewhere.empty()) assignment->reasons.push_back(source.elsewhere);
  return assignment;
}

// Sets and checks everything that depends on which rank runs where.
Status complete(const Options& options, const HostSource& source, JobLayout& config) {
  const Assignment& assignment = config.plan.assignment;
  if (const int rank = std::max(options.output.input.rank, options.output.input.terminal);
      rank >= static_cast<int>(assignment.places.size())) {
    return {Errc::kInvalidArgument, std::string(options.output.input.terminal == rank ? "--tty " : "--stdin ") +
                                        std::to_string(rank) + ": the job has only ranks 0 to " +
                                        std::to_string(assignment.places.size() - 1)};
  }
  const auto settings = read_settings(config.plan.base.variables, {});
  if (!settings.ok()) return settings.status();
  std::vector<std::string> plug_ins;
  for (const std::string& file : plug_in_files()) plug_ins.push_back(backend_of_file(file));
  DISTRUN_RETURN_IF_ERROR(check_backend(settings->settings, plug_ins));
  DISTRUN_RETURN_IF_ERROR(check_protection(options, settings->settings, assignment.hosts.size()));
  config.several_machines = false;
  for (std::size_t i = 0; i < assignment.hosts.size(); ++i) {
    const bool here = names_this_machine(assignment.hosts[i], assignment.users[i], source.own_names);
    config.several_machines = config.several_machines || !here;
  }
  if (!options.frameworks.tf_roles.empty()) {
    const TfServers servers = options.frameworks.tf_servers;
    auto roles = parse_tf_roles(options.frameworks.tf_roles, static_cast<int>(assignment.places.size()), servers);
    if (!roles.ok()) return roles.status();
    DISTRUN_RETURN_IF_ERROR(check_tf_layout(*roles, config.plan.script.strategies));
    if (!has_servers(*roles)) config.common.server.clear();
    config.plan.tf_roles = *std::move(roles);
  }
  for (const Place& place : assignment.places) {
    config.output.hosts.push_back(assignment.hosts[static_cast<std::size_t>(place.host)]);
  }
  return {};
}

Status place_and_complete(const Options& options, const HostSource& source, JobLayout& config) {
  auto assignment = place_ranks(options, source, config.plan.base);
  if (!assignment.ok()) return assignment.status();
  config.plan.assignment = *std::move(assignment);
  return complete(options, source, config);
}

// Called before hosts are asked. Without a given number of ranks, all hosts get some.
Status check_named(const Options& options, const HostSource& source, const JobConfig& config) {
  if (options.placement.ranks > 0) return {};
  const auto settings = read_settings(config.plan.base.variables, {});
  return settings.ok() ? check_protection(options, settings->settings, source.hosts.size()) : settings.status();
}

// Until the hosts have answered, all of them are candidates for ranks.
void ask_first(const Options& options, const HostSource& source, JobConfig& config) {
  for (const HostSlots& host : source.hosts) {
    config.plan.assignment.hosts.push_back(host.name);
    config.plan.assignment.users.push_back(host.user);
  }
  config.several_machines = true;
  config.assign = [options, source](const std::vector<Topology>& found, const JobLayout& asked) -> Result<JobLayout> {
    HostSource known = source;
    const std::vector<std::string> reasons = fill_slots(known.hosts, found, options.placement);
    JobLayout layout = asked;
    DISTRUN_RETURN_IF_ERROR(place_and_complete(options, known, layout));
    auto& all = layout.plan.assignment.reasons;
    all.insert(all.begin(), reasons.begin(), reasons.end());
    return layout;
  };
}

int code_of(const Status& status) {
  if (status.code() == Errc::kTimeout) return exit_code::kTimeout;
  return status.code() == Errc::kInvalidArgument ? exit_code::kUsage : exit_code::kUnusable;
}

// Returns nothing unless agents dial in.
Result<std::optional<DialIn>> listen_for_agents(const Options& options) {
  if (options.hosts.agents == 0) return std::optional<DialIn>();
  if (!options.explain.empty()) {
    return Status(Errc::kInvalidArgument,
                  "--explain and --agents cannot be used together: the hosts are known only when their agents connect");
  }
  // An agent without ranks would only wait for the end of the job.
  const int each = std::max(1, options.placement.ranks_per_host);
  const int filled = (options.placement.ranks + each - 1) / each;
  if (options.placement.ranks > 0 && filled < options.hosts.agents) {
    return Status(Errc::kInvalidArgument, "-np " + std::to_string(options.placement.ranks) +
                                              " gives no rank to some of the hosts of --agents " +
                                              std::to_string(options.hosts.agents) + ": use --agents " +
                                              std::to_string(filled) + ", or more ranks");
  }
  if (options.placement.ranks_per_host > 0 && filled > options.hosts.agents) {
    return Status(Errc::kInvalidArgument, "-np " + std::to_string(options.placement.ranks) + " with " +
                                              std::to_string(options.placement.ranks_per_host) +
                                              " on each host needs more hosts than --agents " +
                                              std::to_string(options.hosts.agents) + ": use --agents " +
                                              std::to_string(filled) + ", or -np " +
                                              std::to_string(options.hosts.agents * options.placement.ranks_per_host));
  }
  const auto key = net::key_from_file(options.hosts.key_file, "--key-file");
  if (!key.ok()) return key.status();
  auto dial_in = DialIn::listen(options.hosts.listen, *key);
  if (!dial_in.ok()) return dial_in.status().with_context("--listen");
  return std::optional<DialIn>(*std::move(dial_in));
}

std::unique_ptr<AgentSpawner> spawner_of(const Options& options, const HostSource& source,
                                         const Environment& environment) {
  SpawnOptions out{.environment = environment, .own_names = source.own_names, .ssh = options.hosts.ssh};
  if (!options.hosts.launch_with.empty()) {
    out.launch_with = options.hosts.launch_with;
  } else if (!source.launch_with.empty()) {
    out.environment = environment_of_steps(environment);
    out.launch_with = source.launch_with;
    out.launch_with_of = source.launch_with_of;
  }
  return make_spawner(out);
}

Status take_command(const Command& command, const Options& options, JobConfig& config) {
  const auto settings = read_settings(config.common.environment, {});
  if (!settings.ok()) return settings.status();
  const bool protects = settings->settings.encrypt || settings->settings.checksum;
  auto words = amended(options, protects, command.words);
  if (!words.ok()) return words.status();
  config.common.command = *std::move(words);
  config.common.script = command.script;
  config.common.choice = command.reason;
  config.plan.script.launcher = launcher_in(command.words);
  if (const auto text = command.source.empty() ? Result<std::string>("") : read_text(command.source); text.ok()) {
    config.plan.script.strategies = strategies_in(*text);
    config.plan.script.imports = imports_in(*text);
  }
  // The module of the package that is installed for the Python of the ranks.
  if (!options.frameworks.tf_roles.empty() && options.frameworks.tf_servers == TfServers::kOurs) {
    config.common.server = our_module("distrun._tf_server");
    config.common.server.insert(config.common.server.begin(), command.python);
  }
  return {};
}

// Without this check, ssh would report it once per host and then try other keys. Only ssh can expand a name with ~ or
// %.
Status check_identity(const std::string& path) {
  if (path.empty() || path.find_first_of("~%") != std::string::npos || ::access(path.c_str(), R_OK) == 0) return {};
  return {Errc::kInvalidArgument, "--ssh-identity " + path + ": " + std::strerror(errno)};
}

void take_options(const Options& options, const Environment& environment, JobConfig& config) {
  config.plan.options = options;
  config.output.options = options.output;
  const auto term = environment.find("TERM");
  config.output.draws = term == environment.end() || term->second != "dumb";
  config.output.colour = config.output.draws && !environment.contains("NO_COLOR");
}

// Takes everything that does not depend on the hosts. Returns why the program's Python was chosen.
Result<std::string> take_program(const Options& options, const Environment& environment, const std::string& invoked_as,
                                 JobConfig& config) {
  DISTRUN_RETURN_IF_ERROR(check_identity(options.hosts.ssh.identity));
  if (const std::string& report = options.output.report; !report.empty()) {
    DISTRUN_RETURN_IF_ERROR(check_report_path(report));
    if (options.explain.empty()) remove_report(report);
  }
  auto base = read_environment(options, environment);
  if (!base.ok()) return base.status();
  for (const std::string& note : base->notes) std::fprintf(stderr, "distrun: %s\n", note.c_str());
  take_settings(base->variables, config);
  config.common.environment = base->variables;
  config.plan.base = *std::move(base);
  auto cwd = working_directory(environment);
  if (!cwd.ok()) return cwd.status();
  config.common.cwd = *std::move(cwd);
  if (const std::string note = note_on_dashes(options); !note.empty()) {
    std::fprintf(stderr, "distrun: %s\n", note.c_str());
  }
  const Command command = resolve_command(options, config.common.environment, invoked_as);
  if (!command.note.empty()) std::fprintf(stderr, "distrun: %s\n", command.note.c_str());
  DISTRUN_RETURN_IF_ERROR(take_command(command, options, config));
  return command.reason.empty() ? "" : command.words.front() + ": " + command.reason;
}

PreparedJob prepare(const Options& options, const Environment& environment, const std::string& invoked_as) {
  PreparedJob out;
  JobConfig& config = out.config;
  if (options.end.timeout > 0) config.end_by = deadline_after(options.end.timeout);
  take_options(options, environment, config);
  // Comes before distrun waits for agents.
  const AmongCopies copies = among_copies(options, environment);
  if (!copies.starts) return refused({Errc::kInvalidArgument, copies.text}, exit_code::kUsage);
  const auto reason = take_program(options, environment, invoked_as, config);
  if (!reason.ok()) return refused(reason.status(), exit_code::kUsage);
  auto dial_in = listen_for_agents(options);
  if (!dial_in.ok()) return refused(dial_in.status(), code_of(dial_in.status()));
  const auto source = *dial_in ? await_agents(options, **dial_in, config) : find_hosts(options, environment);
  const int signal = *dial_in ? (*dial_in)->ended_by() : 0;
  if (signal != 0) return interrupted(source.status(), signal);
  if (!source.ok()) return refused(source.status(), code_of(source.status()));
  out.spawner = *dial_in ? (*dial_in)->spawner() : spawner_of(options, *source, environment);
  out.own_names = source->own_names;
  // --explain lists these notes among the reasons.
  for (const std::string& note : {source->found, source->left_out, copies.text}) {
    if (!note.empty() && options.explain.empty()) std::fprintf(stderr, "distrun: %s\n", note.c_str());
  }
  if (options.explain.empty() && must_ask(options, *source)) {
    if (const Status status = check_named(options, *source, config); !status.ok()) {
      return refused(status, code_of(status));
    }
    ask_first(options, *source, config);
  } else if (const Status status = place_and_complete(options, *source, config); !status.ok()) {
    return refused(status, code_of(status));
  }
  const std::string input =
      options.output.input.program ? "all ranks get standard input, because the program is in it (--stdin)" : "";
  for (const std::string& why : {copies.text, *reason, input}) {
    if (!why.empty()) config.plan.assignment.reasons.push_back(why);
  }
  config.plan.job_id = new_job_id();
  return out;
}

// MPI's launcher starts a wrapper for each rank. These wrappers then act as the agents. Returns a result if the job
// ended before all of them had connected.
std::optional<JobResult> start_mpi(const Options& options, const Environment& environment, PreparedJob& prepared,
                                   std::unique_ptr<MpiStart>& mpi) {
  JobConfig& config = prepared.config;
  if (config.assign) {
    const Status why(Errc::kInvalidArgument, "--mpi needs the slots of each host: write them, as in -H h1:4,h2:4");
    return not_started(why, code_of(why));
  }
  mpi = std::make_unique<MpiStart>(
      MpiRequest{.starter = *parse_mpi_starter(options.hosts.mpi),
                 .assignment = config.plan.assignment,
                 .environment = environment,
                 .own_names = prepared.own_names,
                 .network = options.hosts.network,
                 .several_machines = config.several_machines,
                 .limit = config.start.answer,
                 .keep_trying = config.start.keep_trying,
                 .print = [](const std::string& line) { std::fprintf(stderr, "distrun: %s\n", line.c_str()); },
                 .end_by = config.end_by,
                 .preempt_signal = config.preempt_signal,
                 .as_root = options.hosts.mpi_as_root});
  Status started = mpi->start();
  if (mpi->ended_by() != 0) return interrupted(started, mpi->ended_by()).refused;
  if (started.code() == Errc::kTimeout) started = started.with_context(timeout_option(options));
  if (!started.ok()) return not_started(started, code_of(started));
  config.plan.assignment = one_agent_per_rank(config.plan.assignment);
  prepared.spawner = mpi->spawner();
  return std::nullopt;
}

JobResult run_job(const Options& options, const Environment& environment, PreparedJob& prepared) {
  std::unique_ptr<MpiStart> mpi;
  if (!options.hosts.mpi.empty()) {
    if (auto ended = start_mpi(options, environment, prepared, mpi)) return *std::move(ended);
  }
  auto job = Job::create(prepared.config, *prepared.spawner);
  if (!job.ok()) return not_started(job.status(), exit_code::kUnusable);
  JobResult out = (*job)->run();
  if (mpi) mpi->finish(out.host_lost);
  return out;
}

// Writes --report and returns the exit code. A report that cannot be written counts as lost output.
int reported(const Options& options, const JobResult& result) {
  if (options.output.report.empty()) return result.exit_code;
  const Status written = write_report(options.output.report, report_json(result.failure, result.exit_code));
  if (written.ok()) return result.exit_code;
  std::fprintf(stderr, "distrun: cannot write the file of --report: %s\n", written.message().c_str());
  return result.exit_code == 0 ? exit_code::kOutputLost : result.exit_code;
}

// The program as this machine finds it. A host that is another machine looks for it when the job starts.
std::string obstacle_of(const Program& program, bool here) {
  if (!program.refused) return {};
  return (here ? "The job could not start: " : "On this machine the job could not start: ") + program.refused->text;
}

int explain(const Options& options, JobConfig config, const std::vector<std::string>& own_names) {
  // Placeholders: the agents get the real values. Ports and the store's address do not exist before the job starts.
  config.plan.store = "<free port of this machine>";
  const Assignment& assignment = config.plan.assignment;
  if (config.several_machines) {
    config.plan.assignment.reasons.push_back(
        "addresses are chosen when the job starts, because each host tries those of all others" +
        (options.hosts.network.text.empty() ? "" : " (limited by --network " + options.hosts.network.text + ")") +
        ". -v then shows them");
  }
  // With a copied tree, all hosts are taken for machines like that one.
  const bool copied = options.placement.sysroot != PlacementOptions().sysroot;
  const Topology topology = topology_here(options, config.plan.base);
  std::vector<HostFacts> facts;
  for (std::size_t i = 0; i < assignment.hosts.size(); ++i) {
    const bool here = names_this_machine(assignment.hosts[i], assignment.users[i], own_names);
    facts.push_back(
        {.topology = topology, .asked = here || copied, .address = config.several_machines ? "<probed>" : "127.0.0.1"});
  }
  const bool starts_here = names_this_machine(assignment.hosts.front(), assignment.users.front(), own_names);
  const Program program = find_program(config.common, starts_here ? assignment.hosts.front() : net::host_name());
  const std::string obstacle = obstacle_of(program, starts_here);
  config.plan.assignment.reasons.push_back(
      !obstacle.empty() ? obstacle
                        : (starts_here ? "the program is " : "on this machine the program is ") + program.path);
  auto plan = make_plan(config.plan, facts);
  if (!plan.ok()) return refuse(plan.status(), exit_code::kUsage);
  if (options.explain == "json") {
    std::fputs(explain_json(*plan, config.common.command).c_str(), stdout);
    return 0;
  }
  // It stands at the top, and not among the reasons.
  std::erase(plan->reasons, obstacle);
  std::fputs(explain_text(*plan, config.common.command, obstacle).c_str(), stdout);
  return 0;
}

}  // namespace

int run_command(const Options& options, const Environment& environment, const std::string& invoked_as) {
  PreparedJob prepared = prepare(options, environment, invoked_as);
  if (prepared.refused) {
    // A wrong command line and --explain start no job, so they write no report.
    const bool job = options.explain.empty() && prepared.refused->exit_code != exit_code::kUsage;
    return job ? reported(options, *prepared.refused) : prepared.refused->exit_code;
  }
  if (!options.explain.empty()) return explain(options, std::move(prepared.config), prepared.own_names);
  const mode_t mask = ::umask(022);
  ::umask(mask);
  prepared.config.common.umask = mask;
  prepared.config.common.open_files = raise_open_files();
  return reported(options, run_job(options, environment, prepared));
}

}  // namespace distrun::launcher
