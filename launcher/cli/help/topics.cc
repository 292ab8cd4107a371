#include <algorithm>

#include "launcher/cli/help/texts.h"

namespace distrun::launcher {
namespace {

constexpr HelpTopic kTopics[] = {
    {.name = "start",
     .aliases = "ranks np programs",
     .heading = "Start ranks",
     .of = HelpOf::kDistrun,
     .text = "A rank is one process of the job. distrun starts a program, a Python script or a Python module:\n\n"
             "  distrun -np 4 python train.py\n"
             "  distrun -np 4 train.py --epochs 3\n"
             "  distrun -np 4 -m package.train\n\n"
             "All words after the program are its arguments. Write -- before a program whose words include a lone :",
     .page = "docs/reference/options-by-task.md"},
    {.name = "hosts",
     .aliases = "slots ssh slurm allocation network kubernetes",
     .heading = "Choose hosts and reach them",
     .of = HelpOf::kDistrun,
     .text = "distrun takes the hosts from -H, from --hostfile, or from the allocation of a scheduler around it. "
             "Otherwise the job runs on this machine.\n\n"
             "It reaches hosts by ssh, and inside a Slurm job by srun. Each host needs the same version of distrun.\n\n"
             "  distrun -H node1:4,node2:4 python train.py",
     .page = "docs/reference/hosts.md"},
    {.name = "placement",
     .aliases = "gpus gpu cores bind pinning",
     .heading = "Place ranks on cores and GPUs",
     .of = HelpOf::kDistrun,
     .text = "By default each rank has one GPU: the one whose number is the local rank. If there are more ranks than "
             "GPUs, ranks share them.\n\n"
             "--explain shows the place of each rank and the reason, and starts nothing.",
     .page = "docs/reference/placement.md"},
    {.name = "environment",
     .aliases = "variables env secrets",
     .heading = "Pass environment variables",
     .of = HelpOf::kDistrun,
     .text = "Ranks on all hosts get your environment. Some variables describe one machine, such as HOME, HOSTNAME and "
             "DISPLAY. On other hosts, ranks see that host's own values. To send yours, use -x NAME.\n\n"
             "Do not type a secret as -x NAME=VALUE, because other users can see your command line. Use -x NAME or "
             "--env-file.",
     .page = "docs/reference/variables.md"},
    {.name = "frameworks",
     .aliases = "tensorflow torch pytorch horovod keras jax tf",
     .heading = "Run scripts of other frameworks",
     .of = HelpOf::kDistrun,
     .text = "Scripts for torchrun run without an option. Scripts for tf.distribute, Horovod, Slurm or Open MPI may "
             "need one of these. distrun prints a hint if it sees that a script needs one.",
     .page = "docs/reference/scripts-of-frameworks.md"},
    {.name = "output",
     .aliases = "input lines logs terminal log timeline",
     .heading = "See output, give input",
     .of = HelpOf::kDistrun,
     .text = "distrun shows the lines of all ranks, each with the number of its rank. Standard input goes to rank 0.",
     .page = "docs/reference/output.md"},
    {.name = "end",
     .aliases = "failure timeout preemption signals",
     .heading = "End the job",
     .of = HelpOf::kDistrun,
     .text = "If a rank fails, distrun ends all others, shows the first cause, and exits with the code of that rank. "
             "Ranks that use distrun have half of --grace to end by themselves. Then all get TERM, and KILL when "
             "--grace is over.\n\n"
             "Ctrl-C sends INT to the ranks. A second Ctrl-C kills them at once. Ctrl-\\ shows where the ranks are, "
             "and the job goes on.",
     .page = "docs/reference/end-of-a-job.md"},
    {.name = "waits",
     .aliases = "hang hangs limits stall deadlock",
     .heading = "Limit how long ranks wait",
     .of = HelpOf::kDistrun,
     .text = "These settings say when distrun warns about a wait, and when it ends the job. To see where the ranks of "
             "a job are now, press Ctrl-\\ or send QUIT to distrun.",
     .page = "docs/reference/waits.md"},
    {.name = "backends",
     .aliases = "backend tensors tuning performance",
     .heading = "Choose how tensors move",
     .of = HelpOf::kDistrun,
     .text = "A backend moves the data of tensors between ranks. distrun chooses one by itself.\n\n"
             "- self: copies, for a job of one rank\n"
             "- shm: shared memory of one host\n"
             "- tcp: a ring of connections\n"
             "- hierarchical: one backend inside the hosts, another one between them\n"
             "- gloo, mpi, nccl: plug-ins that use these libraries",
     .page = "docs/reference/backends.md"},
    {.name = "security",
     .aliases = "encryption protection",
     .heading = "Protect tensors between hosts",
     .of = HelpOf::kDistrun,
     .text = "Control messages between hosts are always encrypted. Tensors are not, unless you give --encrypt.",
     .page = "docs/howto/encrypt-tensors.md"},
    {.name = "plan",
     .aliases = "explain version about",
     .heading = "See the plan, and facts about distrun",
     .of = HelpOf::kDistrun,
     .text = "  distrun --explain -np 4 train.py",
     .page = "docs/reference/options-by-task.md"},
    {.name = "check",
     .aliases = "",
     .heading = "Check a machine, or several hosts",
     .of = HelpOf::kCheck,
     .text = "distrun check shows what this machine has, and which backends this installation can use. It gives the "
             "reason for each backend that it cannot use.\n\n"
             "With hosts it starts one rank on each host, and reports what does not fit together: versions, GPUs, "
             "/dev/shm, limits, clocks, latency and bandwidth of each pair. Inside an allocation of several hosts it "
             "does the same for these hosts.\n\n"
             "With hosts, the options of distrun that choose hosts and reach them work too: `distrun help hosts`.",
     .page = "docs/reference/hosts.md"},
    {.name = "agent",
     .aliases = "agents",
     .heading = "Add a host to a job that waits for agents",
     .of = HelpOf::kAgent,
     .text = "distrun agent adds this host to a job that waits for agents. You need it where something else starts "
             "programs on the hosts, such as Kubernetes. The order of the commands does not matter.\n\n"
             "  head -c 32 /dev/urandom > key; chmod 600 key     # once; copy the file to all hosts\n"
             "  distrun -np 16 --agents 2 --listen 7000 --key-file key python train.py\n"
             "  distrun agent --connect HEAD:7000 --key-file key     # on each host",
     .page = "docs/howto/kubernetes.md"},
    {.name = "settings",
     .aliases = "setting",
     .heading = "Four ways to set a setting",
     .text = "A setting is an option of the runtime. There are four ways to set one. If you use several, the first one "
             "of this list counts:\n\n"
             "- the option of init: hvd.init(settings={\"backend\": \"tcp\"})\n"
             "- the flag: distrun --backend tcp\n"
             "- the environment variable: DISTRUN_BACKEND=tcp\n"
             "- the config file: backend = tcp, with distrun --config FILE\n\n"
             "A size has a unit, as in 128k or 4MiB. A time is in seconds, unless it has a unit, as in 500ms. "
             "`distrun help` with the name of a setting shows its text.",
     .page = "docs/reference/settings.md"},
    {.name = "exit-codes",
     .aliases = "codes exit",
     .heading = "What the exit code means",
     .text = "distrun exits with the code of the first rank that failed, or with one of these:\n\n"
             "  0         all ranks exited with 0\n"
             "  128 + N   signal N ended the first rank that failed\n"
             "  64        the command line, a config file or a DISTRUN_ variable is wrong\n"
             "  69        a host, its slots or its agent cannot be used; nothing was started\n"
             "  70        a bug in distrun\n"
             "  74        all ranks exited with 0, but some output was lost\n"
             "  75        a host was lost, or the network between two hosts\n"
             "  76        a rank left while others still needed it\n"
             "  124       --timeout was over\n"
             "  126       the program may not be executed\n"
             "  127       the program is missing\n"
             "  129       the launcher got HUP\n"
             "  130       the launcher got INT (Ctrl-C)\n"
             "  141       the reader of standard output went away\n"
             "  143       the launcher got TERM",
     .page = "docs/reference/exit-codes.md"},
};

}  // namespace

std::span<const HelpTopic> help_topics() { return kTopics; }

bool is_of(const OptionText& option, HelpOf command) {
  return std::any_of(std::begin(kTopics), std::end(kTopics),
                     [&](const HelpTopic& topic) { return topic.name == option.topic && topic.of == command; });
}

}  // namespace distrun::launcher
