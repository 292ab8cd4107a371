#include "launcher/cli/help/texts.h"

#include <algorithm>
#include <cctype>

#include "runtime/base/settings.h"

namespace distrun::launcher {
namespace {

// A row as OptionText has it.
struct OwnRow {
  std::string_view topic;
  std::string_view names;
  std::string_view value = "";
  std::string_view brief;
  std::string_view more;
  std::string_view shown = "";
};

constexpr OwnRow kOwnRows[] = {
    {.topic = "start",
     .names = "-n,--num-proc,--np",
     .value = "N",
     .brief = "Number of ranks (default: one for each slot)",
     .more = "Without -np the job has one rank for each slot of its hosts. If you name no hosts and there is "
             "no allocation, give -np or --nproc-per-node. Other ways to write it: -np 4, -np4, -np=4.",
     .shown = "-np, --num-proc N"},
    {.topic = "start",
     .names = "--nproc-per-node,--ppn",
     .value = "N",
     .brief = "Number of ranks on each host",
     .more = "It counts instead of the slots of the hosts. You can also write -ppn or -npernode. In all long options "
             "you may write _ for -."},
    {.topic = "start",
     .names = "--oversubscribe",
     .brief = "Allow more ranks than slots",
     .more = "Without it, more ranks than slots are an error (exit code 69). max_slots in a host file still "
             "limits the ranks of a host."},
    {.topic = "start",
     .names = "--config",
     .value = "FILE",
     .brief = "Read options from a file of lines: name = value",
     .more = "A name is the long name of an option, or of a setting. A flag needs no value, and false turns "
             "it off. An option that may be repeated takes a list in [ ], or several lines. # starts a "
             "comment.\n\n"
             "Options that you type count before those of the file. DISTRUN_ variables count before the "
             "settings in the file."},
    {.topic = "hosts",
     .names = "-H,--host,--hosts",
     .value = "HOST[:SLOTS],...",
     .brief = "Hosts and their slots, as in node1:4,node2:4",
     .more = "A slot is room for one rank. Ranks fill one host after the other. A host without a number has "
             "one slot for each GPU, or else for each core.\n\n"
             "- me@node1:4: with a user for ssh\n"
             "- node[01-04,7]:8: five hosts with 8 slots each\n"
             "- [fe80::1]:4: an address of IPv6",
     .shown = "-H, --hosts HOST[:SLOTS],..."},
    {.topic = "hosts",
     .names = "--hostfile,--machinefile",
     .value = "FILE",
     .brief = "Read the hosts from a file; - is standard input",
     .more = "Each line is a host, as in node1 slots=4 or node1:4. Files for Open MPI, MPICH, Intel MPI, PBS "
             "and LSF work too. # starts a comment."},
    {.topic = "hosts",
     .names = "--no-detect",
     .brief = "Do not use the allocation of a scheduler (Slurm, PBS, LSF, ...)",
     .more = "Without hosts, the job then runs on this machine. With hosts, distrun reaches them by ssh, "
             "also inside a Slurm job.\n\n"
             "If srun or mpirun starts several copies of this command, each copy then runs a job of its own."},
    {.topic = "hosts",
     .names = "--network",
     .value = "NAMES",
     .brief = "Use only these interfaces or networks, as in eth0,10.0.0.0/8",
     .more = "Patterns such as ib* work too. distrun tries no other addresses, and prefers the "
             "first one that you name. -v shows the choice."},
    {.topic = "hosts",
     .names = "--ssh-port",
     .value = "PORT",
     .brief = "Port of the ssh servers (default: as ssh is configured)",
     .more = "It adds to your ~/.ssh/config, which ssh reads as usual."},
    {.topic = "hosts",
     .names = "--ssh-identity",
     .value = "FILE",
     .brief = "Private key for ssh",
     .more = "It adds to your ~/.ssh/config, which ssh reads as usual. `ssh HOST true` must work without a "
             "password."},
    {.topic = "hosts",
     .names = "--ssh-option",
     .value = "NAME=VALUE",
     .brief = "Pass an option to ssh, as its -o does (may be repeated)",
     .more = "For example: --ssh-option ServerAliveInterval=5"},
    {.topic = "hosts",
     .names = "--launch-with",
     .value = "COMMAND",
     .brief = "Start agents on the hosts by this command instead of ssh",
     .more = "distrun replaces {host} and {agent} in the command, and {user} if the hosts have users. The "
             "command must carry standard input and output.\n\n"
             "  --launch-with 'kubectl exec -i {host} -- sh -c {agent}'\n"
             "  --launch-with 'docker exec -i {host} sh -c {agent}'"},
    {.topic = "hosts",
     .names = "--mpi",
     .value = "[=hydra|pmix|pmi2]",
     .brief = "Let MPI's launcher start the ranks, so that MPI works in them",
     .more = "- --mpi: mpirun of Open MPI\n"
             "- --mpi=hydra: mpiexec of MPICH or Intel MPI\n"
             "- --mpi=pmix, --mpi=pmi2: srun, inside a Slurm job\n\n"
             "Without it, MPI in each rank sees one process.",
     .shown = "--mpi[=hydra|pmix|pmi2]"},
    {.topic = "hosts",
     .names = "--allow-run-as-root",
     .brief = "With --mpi: let mpirun start the ranks although you are root",
     .more = "mpirun of Open MPI refuses to run as root without it. distrun itself, and the other launchers of --mpi, "
             "run as root without an option."},
    {.topic = "hosts",
     .names = "--agents",
     .value = "N",
     .brief = "Wait until N agents connect, instead of starting them",
     .more = "Something else starts `distrun agent --connect` on each host. It needs --key-file. The agents "
             "bring the hosts, so -H and --hostfile are not allowed."},
    {.topic = "hosts",
     .names = "--listen",
     .value = "[ADDRESS:]PORT",
     .brief = "Where the agents of --agents connect (default: a free port)",
     .more = "Without an address, distrun listens on all addresses of this machine."},
    {.topic = "hosts",
     .names = "--key-file",
     .value = "FILE",
     .brief = "Secret key that distrun shares with the agents of --agents",
     .more = "The file has 32 random bytes and is the same on all hosts. Only you may read it.\n\n"
             "  head -c 32 /dev/urandom > FILE; chmod 600 FILE"},
    {.topic = "placement",
     .names = "--bind-to",
     .value = "WHAT",
     .brief = "Pin each rank to cores: auto (default), none, core, numa, gpu",
     .more = "- auto: as gpu if there are GPUs, else as none\n"
             "- none: a rank may use all cores\n"
             "- core: whole cores that no other rank has\n"
             "- numa: all cores near its GPUs; without GPUs, one NUMA node after the other\n"
             "- gpu: all cores near its GPUs"},
    {.topic = "placement",
     .names = "--gpu-visibility",
     .value = "all|one",
     .brief = "Let ranks see all GPUs of the host (default), or one",
     .more = "- all: a rank uses the GPU whose number is its local rank\n"
             "- one: a rank sees only its own GPU, as number 0\n\n"
             "one is the default with --tf, with --gpus-per-rank from 2 on, and for GPUs in MIG mode."},
    {.topic = "placement",
     .names = "--gpus-per-rank",
     .value = "N",
     .brief = "Number of GPUs of each rank (default 1)",
     .more = "From 2 on, a rank sees only its own GPUs. Too few GPUs are an error if you give this option. "
             "Without it, ranks share GPUs if there are too few."},
    {.topic = "placement",
     .names = "--report-bindings",
     .brief = "Show the cores and the GPU of each rank before it starts",
     .more = "It prints one line for each rank on standard error."},
    {.topic = "environment",
     .names = "-x",
     .value = "NAME[=VALUE]",
     .brief = "Set a variable for the ranks, or send yours (may be repeated)",
     .more = "-x NAME=VALUE sets a variable, and -x NAME sends yours to all hosts. The variables that tell a "
             "rank its number cannot be changed."},
    {.topic = "environment",
     .names = "--env",
     .value = "WHICH",
     .brief = "Variables that ranks get from you: default, all or none",
     .more = "- default: all of yours, except those of an outer launcher such as srun\n"
             "- all: all of yours\n"
             "- none: PATH, HOME and a few others, DISTRUN_ variables, and those of -x and --env-file"},
    {.topic = "environment",
     .names = "--env-file",
     .value = "FILE",
     .brief = "Set variables from a file of lines: NAME=value",
     .more =
         "NAME alone sends your variable. # starts a comment line. Quotes around the whole value are removed, and a "
         "line with export means what it means in a shell. Use a file for secrets: it keeps them off the command "
         "line."},
    {.topic = "frameworks",
     .names = "--tf",
     .brief = "For tf.distribute: set TF_CONFIG, and one GPU for each rank",
     .more = "Every rank is a worker of MultiWorkerMirroredStrategy, and sees its own GPU only."},
    {.topic = "frameworks",
     .names = "--tf-roles",
     .value = "ROLES",
     .brief = "Roles in the order of ranks, as in chief=1,worker=2,ps=1",
     .more = "It includes --tf. With a ps, the chief and an evaluator run your program. The ranks of ps and "
             "worker run a server of TensorFlow, which distrun ends with the chief."},
    {.topic = "frameworks",
     .names = "--tf-own-servers",
     .brief = "Let the program run in every role and start the servers itself",
     .more = "It is for programs with a ps that start TensorFlow's servers themselves, and whose workers "
             "train. It needs --tf-roles with a ps."},
    {.topic = "frameworks",
     .names = "--tf-keras3-mwms",
     .brief = "Repair fit() of Keras 3 with MultiWorkerMirroredStrategy",
     .more = "It includes --tf. The script stays as it is. The command must be a Python script or module."},
    {.topic = "frameworks",
     .names = "--torch-backend",
     .value = "NAME",
     .brief = "distrun: use distrun where a torch script asks for gloo",
     .more = "The only name is distrun. torch.distributed then uses distrun's backends, and the script stays "
             "as it is. Without the option, the script's own choice counts."},
    {.topic = "frameworks",
     .names = "--no-tf-config",
     .brief = "Do not set TF_CONFIG",
     .more = "Otherwise each rank of a job with several ranks gets TF_CONFIG. Use this if your script sets "
             "it itself."},
    {.topic = "frameworks",
     .names = "--horovod",
     .brief = "Also set HOROVOD_RANK and the like",
     .more = "It is for scripts that read Horovod's variables. It does nothing else."},
    {.topic = "frameworks",
     .names = "--mimic",
     .value = "WHOM",
     .brief = "Also set the rank's variables of openmpi or slurm",
     .more = "It is for scripts that know their rank by the variables of Open MPI or Slurm, such as "
             "SLURM_PROCID. The default is none."},
    {.topic = "output",
     .names = "--tag",
     .value = "WHAT",
     .brief = "Start of each line: rank ([3], default), host ([3@node1]), none",
     .more = "none also means that merged.log of --output-dir has no tags."},
    {.topic = "output",
     .names = "--timestamp",
     .brief = "Put date and time before each line",
     .more = "It is the local time of the machine where you type distrun."},
    {.topic = "output",
     .names = "--fold",
     .brief = "Show a line that many ranks write once, as in [0-15]",
     .more = "This is the default on a terminal. A line waits at most 0.2 s for the same line of other "
             "ranks."},
    {.topic = "output",
     .names = "--no-fold",
     .brief = "Show the lines of each rank",
     .more = "This is the default in a file or a pipe."},
    {.topic = "output",
     .names = "--stdin",
     .value = "RANK",
     .brief = "Rank that gets standard input: a number, all or none (default 0)",
     .more = "With all, each rank gets a copy. With none, distrun reads nothing.\n\n"
             "If the program itself is standard input, as in python - or bash -s, all ranks get it by default. Input "
             "that no rank has read stays in a file, pipe or socket, for the shell's next command."},
    {.topic = "output",
     .names = "--tty",
     .value = "RANK",
     .brief = "Give this rank your terminal, for a debugger or a prompt",
     .more = "It works for a rank on any host. Keys go to the rank as they are, also Ctrl-C and Ctrl-Z. "
             "Ctrl-\\ shows where the ranks are, and the job goes on. This rank gets the input, so --stdin is "
             "not allowed."},
    {.topic = "output",
     .names = "--output-dir",
     .value = "DIR",
     .brief = "Also write the output of each rank to files in DIR",
     .more = "- rank.<r>.out and rank.<r>.err: what rank r wrote\n"
             "- merged.log: the lines of all ranks and of distrun"},
    {.topic = "output",
     .names = "--report",
     .value = "FILE",
     .brief = "Write how the job ended to FILE, as JSON",
     .more = "It is for programs, such as a scheduler. distrun writes the file when the job has ended."},
    {.topic = "output",
     .names = "--all-errors",
     .brief = "After a failure, show what all ranks write",
     .more = "Without it, distrun shows the first cause, and keeps back the errors that follow from it."},
    {.topic = "end",
     .names = "--timeout",
     .value = "SECONDS",
     .brief = "End the job after this time, with exit code 124",
     .more = "The time starts when you type the command. It includes the wait for the agents of --agents."},
    {.topic = "end",
     .names = "--grace",
     .value = "SECONDS",
     .brief = "Time that ranks have to end before KILL (default 10)",
     .more = "It counts when a rank has failed, and after Ctrl-C. If you give it, it also limits the time to "
             "stop after the signal of --preempt-signal."},
    {.topic = "plan",
     .names = "--explain",
     .value = "[=json]",
     .brief = "Show the plan and the reasons; start nothing",
     .more = "It shows the host, cores, GPU, threads and environment of each rank. --explain=json is for "
             "programs.\n\n"
             "It prints the values of variables that you set. Do not post secrets.",
     .shown = "--explain[=json]"},
    {.topic = "plan",
     .names = "-v,--verbose",
     .brief = "Say how distrun chose hosts, addresses, cores and GPUs",
     .more = "The job then starts as usual.",
     .shown = "-v, --verbose"},
    {.topic = "plan",
     .names = "--version",
     .brief = "Show the version",
     .more = "The version of distrun on this machine. `distrun check -H` compares those of several hosts."},
    {.topic = "plan",
     .names = "--cflags",
     .brief = "Show compiler options for C and C++ programs",
     .more = "  cc $(distrun --cflags) sum.c $(distrun --libs)"},
    {.topic = "plan",
     .names = "--libs",
     .brief = "Show linker options for C and C++ programs",
     .more = "  cc $(distrun --cflags) sum.c $(distrun --libs)"},
    {.topic = "plan",
     .names = "-h,--help",
     .brief = "Show this help",
     .more = "`distrun help TOPIC` and `distrun help OPTION` have more.",
     .shown = "-h, --help"},
    {.topic = "check",
     .names = "-H,--host,--hosts",
     .value = "HOST,...",
     .brief = "Check these hosts, and the network between them",
     .more = "They are written as for distrun itself.",
     .shown = "-H, --hosts HOST,..."},
    {.topic = "check",
     .names = "--hostfile,--machinefile",
     .value = "FILE",
     .brief = "Check the hosts of a file",
     .more = "The file is that of distrun --hostfile."},
    {.topic = "check",
     .names = "--config",
     .value = "FILE",
     .brief = "Read options, such as the hosts, from a file",
     .more = "The file may be that of a job."},
    {.topic = "check",
     .names = "--no-detect",
     .brief = "Check this machine, not the hosts of an allocation",
     .more = "Without it, distrun check inside an allocation of several hosts looks at all of them."},
    {.topic = "check",
     .names = "--build",
     .brief = "Show only which backends this installation can use",
     .more = "It is about this machine, also inside an allocation."},
    {.topic = "check",
     .names = "--json",
     .brief = "Print the result as JSON",
     .more = "It is for programs. docs/reference/hosts.md lists the keys."},
    {.topic = "check",
     .names = "--timeout",
     .value = "SECONDS",
     .brief = "End after this time, and name the silent hosts (default 60)",
     .more = "The exit code is then 124. It counts for a check of hosts."},
    {.topic = "check",
     .names = "-h,--help",
     .brief = "Show this help",
     .more = "`distrun help check` has more.",
     .shown = "-h, --help"},
    {.topic = "agent",
     .names = "--connect",
     .value = "HEAD:PORT",
     .brief = "Address of distrun --agents N --listen PORT",
     .more = "distrun may start later than its agents: they try again until --timeout."},
    {.topic = "agent",
     .names = "--key-file",
     .value = "FILE",
     .brief = "Secret key; the same file as for distrun --key-file",
     .more = "It has 32 bytes, and only you may read it. Without the option, DISTRUN_KEY_FILE names the "
             "file."},
    {.topic = "agent",
     .names = "--host",
     .value = "NAME",
     .brief = "Name of this host in the job (default: its own name)",
     .more = "Each host needs a name of its own."},
    {.topic = "agent",
     .names = "--timeout",
     .value = "SECONDS",
     .brief = "How long to wait for distrun to answer (default 300)",
     .more = "The exit code is then 69."},
    {.topic = "agent",
     .names = "-h,--help",
     .brief = "Show this help",
     .more = "`distrun help agent` has more.",
     .shown = "-h, --help"},
};

std::string with_dashes(std::string_view setting) {
  std::string name(setting);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

OptionText row_of(const SettingRow& setting) {
  const bool flag = setting.type == "flag";
  const std::string name = "--" + with_dashes(setting.name);
  std::string variable = "DISTRUN_";
  for (const char c : setting.name) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::string value = flag ? "[=yes|no]" : std::string(setting.value);
  const std::string& preset = setting.default_value;
  std::string shown_default = " (default " + preset + ")";
  if (preset.empty() || preset == "false") shown_default.clear();
  if (preset == "0") shown_default = " (default: off)";
  return {.topic = setting.topic,
          .names = name,
          .value = value,
          .brief = std::string(setting.brief) + shown_default,
          .more = std::string(setting.more) + "\n\nIt takes " + setting.allowed + ". The variable is " + variable + ".",
          .shown = flag ? name + value : ""};
}

}  // namespace

const std::vector<OptionText>& option_texts() {
  static const std::vector<OptionText> all = [] {
    std::vector<OptionText> rows;
    for (const OwnRow& row : kOwnRows) {
      rows.push_back({.topic = row.topic,
                      .names = std::string(row.names),
                      .value = std::string(row.value),
                      .brief = std::string(row.brief),
                      .more = std::string(row.more),
                      .shown = std::string(row.shown)});
    }
    for (const SettingRow& setting : setting_rows()) rows.push_back(row_of(setting));
    return rows;
  }();
  return all;
}

const OptionText* find_option_text(std::string_view name) {
  for (const OptionText& option : option_texts()) {
    const std::vector<std::string> names = names_of(option);
    if (is_of(option, HelpOf::kDistrun) && std::find(names.begin(), names.end(), name) != names.end()) return &option;
  }
  return nullptr;
}

std::vector<std::string> names_of(const OptionText& option) {
  std::vector<std::string> names;
  for (std::size_t start = 0; start < option.names.size();) {
    const std::size_t end = std::min(option.names.find(',', start), option.names.size());
    names.push_back(option.names.substr(start, end - start));
    start = end + 1;
  }
  return names;
}

}  // namespace distrun::launcher
