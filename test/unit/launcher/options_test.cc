#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "launcher/agent/preflight/python_module.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/check.h"
#include "launcher/cli/help/help.h"
#include "launcher/cli/help/other_launchers_options.h"
#include "launcher/cli/help/texts.h"
#include "launcher/cli/program.h"
#include "test/support/text.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

Options parsed(const std::vector<std::string>& words) {
  const ParseOutcome outcome = parse_arguments(words);
  INFO(outcome.text);
  REQUIRE(outcome.run);
  return outcome.options;
}

std::string refused(const std::vector<std::string>& words) {
  const ParseOutcome outcome = parse_arguments(words);
  REQUIRE_FALSE(outcome.run);
  CHECK(outcome.exit_code == 64);
  return outcome.text;
}

using distrun::test::has;

TEST_CASE("-np in all its spellings") {
  for (const auto& words : std::vector<std::vector<std::string>>{{"-np", "3", "p"},
                                                                 {"-np3", "p"},
                                                                 {"-np=3", "p"},
                                                                 {"-n", "3", "p"},
                                                                 {"-n3", "p"},
                                                                 {"--num-proc", "3", "p"},
                                                                 {"--num-proc=3", "p"},
                                                                 {"--np", "3", "p"}}) {
    CHECK(parsed(words).placement.ranks == 3);
    CHECK(parsed(words).program == std::vector<std::string>{"p"});
  }
}

TEST_CASE("mpirun's, Hydra's, torchrun's and horovodrun's ways to say how many on each host") {
  for (const auto& words : std::vector<std::vector<std::string>>{{"-ppn", "3", "p"},
                                                                 {"-ppn=3", "p"},
                                                                 {"-ppn3", "p"},
                                                                 {"--ppn", "3", "p"},
                                                                 {"--nproc-per-node", "3", "p"},
                                                                 {"--nproc-per-node=3", "p"},
                                                                 {"--nproc_per_node=3", "p"}}) {
    CHECK(parsed(words).placement.ranks_per_host == 3);
    CHECK(parsed(words).placement.ranks == 0);
    CHECK(parsed(words).program == std::vector<std::string>{"p"});
  }
  CHECK(parsed({"p", "-ppn", "3"}).placement.ranks_per_host == 0);
  CHECK(has(refused({"-ppn", "0", "p"}), "--nproc-per-node 0: '0' is not a number of ranks"));
  CHECK(has(refused({"--nproc-per-node", "gpu", "p"}), "'gpu' is not a number of ranks"));
  for (const char* all : {"--nproc_per_node=gpu", "--nproc-per-node=auto"}) {
    CHECK(has(refused({all, "p"}), "leave it out and name the hosts, as in distrun -H localhost train.py"));
  }
  for (const char* option : {"-npernode", "--npernode"})
    CHECK(parsed({option, "3", "p"}).placement.ranks_per_host == 3);
}

TEST_CASE("mpirun's options with one dash that distrun has with two") {
  const Options options = parsed({"-bind-to", "none", "-oversubscribe", "-report-bindings", "p", "-bind-to", "x"});
  CHECK(options.placement.bind_to == BindTo::kNone);
  CHECK(options.placement.oversubscribe);
  CHECK(options.placement.report_bindings);
  CHECK(options.program == std::vector<std::string>{"p", "-bind-to", "x"});
}

TEST_CASE("each option of another launcher is answered with what to type instead, and hides none of distrun's") {
  const std::string help = parse_arguments({"--help"}).text;
  for (const OtherLaunchersOption& other : other_launchers_options()) {
    const char* dashes = other.name.starts_with('-') ? "" : other.name.size() == 1 ? "-" : "--";
    const std::string dashed = dashes + std::string(other.name);
    INFO(dashed);
    std::vector<std::string> words = {dashed};
    words.insert(words.end(), static_cast<std::size_t>(other.values), "value");
    words.insert(words.end(), {"-np", "2", "p"});
    CHECK(refused(words) == "distrun: " + dashed + " is not an option of distrun: " + std::string(other.instead) +
                                "\nType distrun --help for all options.\n");
    for (const char* end : {" ", ",", "[", "\n"}) {
      CHECK_FALSE(has(help, "  " + dashed + end));
      CHECK_FALSE(has(help, "," + dashed + end));
    }
  }
  CHECK(has(refused({"--gloo", "p"}), "leave it out"));
  CHECK(has(refused({"-env", "A", "1", "-prefix-timestamp", "p"}), "-prefix-timestamp is not an option of distrun"));
  CHECK(has(refused({"-env", "A=1", "-r", "3", "p"}), "-r is not an option of distrun: use --output-dir"));
  CHECK(has(refused({"--blacklist-cooldown-range", "15", "30", "-t", "3", "p"}), "-t is not an option of distrun"));
  CHECK(parsed({"--env", "none", "p"}).environment.mode == EnvMode::kNone);
  CHECK(has(refused({"-tag-output", "p"}), "-tag-output is not an option of distrun: leave it out"));
  CHECK(has(refused({"--master_port=1", "p"}), "--master_port is not an option of distrun: leave it out"));
}

TEST_CASE("all options of a line that distrun does not have are answered at once") {
  const std::string text = refused({"--standalone", "--nnodes=1", "-mca", "btl", "tcp", "--rdzv_id", "7", "--tag",
                                    "none", "--nope", "--max_restarts=0", "p"});
  for (const char* word : {"--standalone", "--nnodes", "-mca", "--rdzv_id", "--nope"}) {
    CHECK(has(text, "distrun: " + std::string(word) + " is not an option of distrun"));
  }
  CHECK_FALSE(has(text, "--max_restarts"));  // it may be the value of the unknown option
  CHECK_FALSE(has(text, "btl is"));
  CHECK(has(refused({"-genv", "A=1", "--gloo", "-np", "2", "p"}), "--gloo is not"));
  CHECK(has(refused({"-genv", "A", "1", "--gloo", "-np", "2", "p"}), "--gloo is not"));
}

TEST_CASE("mpirun's, Hydra's and horovodrun's ways to name hosts") {
  for (const char* option : {"-H", "-host", "--host", "-hosts", "--hosts"}) {
    CHECK(parsed({option, "a:2,b", "p"}).hosts.list == "a:2,b");
  }
  for (const char* option : {"--hostfile", "-hostfile", "--machinefile", "-machinefile"}) {
    CHECK(parsed({option, "f", "p"}).hosts.file == "f");
    CHECK(parsed({std::string(option) + "=f", "p"}).hosts.file == "f");
  }
}

TEST_CASE("torchrun's ways to start the same command on every host are explained") {
  for (const char* option : {"--nnodes=2", "--node-rank", "--node_rank", "--rdzv-endpoint=h:1", "--rdzv_endpoint"}) {
    CHECK(has(refused({option, "p"}), "Type distrun once, and name all hosts with -H or --hostfile"));
  }
}

TEST_CASE("what follows the program is the program's") {
  CHECK(parsed({"-np", "1", "prog", "-np", "7", "--timeout", "x", "--", "-m"}).program ==
        std::vector<std::string>{"prog", "-np", "7", "--timeout", "x", "--", "-m"});
  CHECK(parsed({"--oversubscribe", "--", "--odd", "x"}).program == std::vector<std::string>{"--odd", "x"});
  const Options module = parsed({"-np", "1", "-m", "pkg.train", "-np", "2"});
  CHECK(module.module);
  CHECK(module.program == std::vector<std::string>{"pkg.train", "-np", "2"});
  CHECK(parsed({"--explain", "prog"}).explain == "text");
  CHECK(parsed({"--explain=json", "prog"}).explain == "json");
}

TEST_CASE("bad values are refused with what is allowed") {
  CHECK(has(refused({"-np", "0", "p"}), "-np 0: '0' is not a number of ranks"));
  CHECK(has(refused({"-np", "x", "p"}), "'x' is not a number of ranks"));
  CHECK(has(refused({"-np", "100000000", "p"}), "-np 100000000: a job has at most 1048576 ranks"));
  CHECK(has(refused({"-np", "99999999999999999999", "p"}), "a job has at most 1048576 ranks"));
  CHECK(has(refused({"-np", "-1", "p"}), "'-1'"));
  CHECK(has(refused({"-np", "2.5", "p"}), "2.5"));
  CHECK(has(refused({"--bind-to", "socket", "p"}), "none, core, numa, gpu"));
  CHECK(has(refused({"--tag", "x", "p"}), "none, rank, host"));
  CHECK(has(refused({"--grace", "-1", "p"}), "--grace -1 is not a time"));
  CHECK(has(refused({"--timeout", "nan", "p"}), "--timeout nan is not a time"));
  CHECK(has(refused({"-x", "a b=1", "p"}), "-x a b=1"));
  CHECK(has(refused({"--fusion-threshold", "many", "p"}), "--fusion-threshold"));
  CHECK(has(refused({"--explain=xml", "p"}), "--explain=xml"));
  CHECK(has(refused({"-H", "a", "--hostfile", "f", "p"}), "one of them"));
  CHECK(has(refused({"--tf", "--no-tf-config", "p"}), "--no-tf-config"));
  CHECK(has(refused({"-np"}), "-np needs a value: N\n"));
  CHECK(has(refused({"-np", "2", "--tag"}), "--tag needs a value: WHAT\n"));
  CHECK(has(refused({"-np", "2", "-np", "3", "p"}), "-np is given twice: leave one of them out\n"));
  CHECK(has(refused({"--log-level", "info", "--log-level=debug", "p"}), "--log-level is given twice"));
  CHECK(parsed({"-x", "A=1", "-x", "B=2", "-v", "-v", "-np", "1", "p"}).environment.forwarded.size() == 2);
  CHECK(has(refused({"--config", "/no/file", "p"}), "cannot read the file of --config: /no/file\n"));
  CHECK(has(refused({"-np", "2"}), "no program is given"));
  CHECK(has(refused({"-np", "2", "-m"}), "-m needs"));
  CHECK(has(refused({"-np", "2", ""}), "empty"));
}

TEST_CASE("what is not there is refused, not swallowed") {
  CHECK(has(refused({"--nope", "-np", "1", "p"}), "--nope is not an option of distrun"));
  CHECK(has(refused({"-np", "1", "--nop=3", "p"}), "--nop=3 is not an option"));
  CHECK(parse_arguments({"--mpi=hydra", "true"}).run);
  CHECK_FALSE(parse_arguments({"--mpi=mpich", "true"}).run);
  CHECK_FALSE(parse_arguments({"--mpi", "--ssh-port", "22", "true"}).run);
  CHECK_FALSE(parse_arguments({"--mpi", "--mimic", "slurm", "true"}).run);
  CHECK(parse_arguments({"--mpi", "true"}).options.hosts.mpi == "mpirun");
  CHECK(parse_arguments({"--mpi=pmix", "true"}).options.hosts.mpi == "pmix");
  for (const char* later : {"--insecure", "--min-np"}) {
    CHECK(has(refused({later, "p"}), std::string(later) + " is not an option of distrun: "));
  }
  CHECK(has(refused({"--propagate", "p"}), "on other hosts they have the other limits of that host"));
}

TEST_CASE("an unknown option is answered with the nearest one") {
  CHECK(has(refused({"--hostflie", "f", "p"}), "--hostflie is not an option of distrun; did you mean --hostfile?\n"));
  CHECK(has(refused({"--fusion_treshold=3", "p"}),
            "--fusion_treshold=3 is not an option of distrun; did you mean --fusion-threshold?\n"));
  CHECK(has(refused({"-oversubscibe", "p"}), "did you mean --oversubscribe?"));
  CHECK(has(refused({"--xyzzyxyzzyxyzzy", "p"}), "--xyzzyxyzzyxyzzy is not an option of distrun\n"));
  CHECK_FALSE(has(refused({"--start-fan-in", "3", "p"}), "fan-out"));  // an option for developers
}

TEST_CASE("_ may stand for - in every long option, and in nothing else") {
  for (const OptionText& option : option_texts()) {
    if (!is_of(option, HelpOf::kDistrun)) continue;
    for (std::string name : names_of(option)) {
      if (!name.starts_with("--")) continue;
      std::replace(name.begin(), name.end(), '-', '_');
      name.replace(0, 2, "--");
      INFO(name);
      CHECK_FALSE(has(parse_arguments({name, "1", "program"}).text, "is not an option of distrun"));
    }
  }
  const Options options =
      parsed({"--num_proc=2", "--output_dir=a_b", "--ssh_option", "--a_b", "-x", "A_B", "./a_b", "--c_d"});
  CHECK(options.placement.ranks == 2);
  CHECK(options.output.directory == "a_b");
  CHECK(options.hosts.ssh.options == std::vector<std::string>{"--a_b"});
  CHECK(options.environment.forwarded == std::vector<std::string>{"A_B"});
  CHECK(options.program == std::vector<std::string>{"./a_b", "--c_d"});
  CHECK(host_check_job({"-H", "h1", "--nproc_per_node", "2"}, {}).text.find("leave out --nproc_per_node") !=
        std::string::npos);
}

TEST_CASE("a check of hosts answers to a wrong word for itself, with its own options") {
  const auto answer = [](const std::vector<std::string>& words) {
    const ParseOutcome outcome = host_check_job(words, {});
    CHECK_FALSE(outcome.run);
    return outcome.text;
  };
  CHECK(answer({"-H", "h1", "--nope"}) == "distrun: --nope is not an option of distrun check\n");
  CHECK(answer({"-H", "h1", "--jsn"}) == "distrun: --jsn is not an option of distrun check; did you mean --json?\n");
  CHECK(answer({"--netwrk=eth0", "-H", "h1"}) ==
        "distrun: --netwrk=eth0 is not an option of distrun check; did you mean --network?\n");
  CHECK(answer({"--host"}) == "distrun: --host needs a value: HOST[:SLOTS],...\n");
  CHECK(host_check_job({"-H", "h1", "--ssh-port", "22", "--json"}, {}).run);
}

TEST_CASE("--allow-run-as-root is for mpirun, which --mpi starts") {
  CHECK(parsed({"--mpi", "--allow-run-as-root", "p"}).hosts.mpi_as_root);
  CHECK(parsed({"-allow-run-as-root", "--mpi=mpirun", "p"}).hosts.mpi_as_root);
  CHECK_FALSE(parsed({"--mpi", "p"}).hosts.mpi_as_root);
  CHECK(has(refused({"--allow-run-as-root", "p"}), "leave out --allow-run-as-root. root may start jobs"));
  CHECK_FALSE(parse_arguments({"--mpi=pmix", "--allow-run-as-root", "p"}).run);
}

TEST_CASE("characters of a document in a command line are named") {
  CHECK(has(refused({"\u2013np", "4", "python"}),
            "'\u2013np' is no option, and no program has such a name\nThe text has the character U+2013 (en dash), as "
            "documents have it. Type - or -- instead.\n"));
  CHECK(has(refused({"\u2014np", "4", "python"}), "U+2014 (em dash)"));
  CHECK(has(refused({"-np", "4\u00a0", "p"}), "U+00A0 (no-break space), as documents have it. Type a space instead."));
  CHECK(has(refused({"--nproc\u2011per\u2011node", "4", "p"}),
            "did you mean --nproc-per-node?\nThe text has the character U+2011"));
  CHECK(has(refused({"-x", "\u201cA=1\u201d", "p"}), "U+201C (left double quotation mark)"));
  CHECK(has(refused({"--timeout", "\u22125", "p"}), "U+2212 (minus sign)"));
  CHECK(parse_arguments({"--", "\u2013np"}).run);
  CHECK(parse_arguments({"echo", "\u2013np"}).run);
  CHECK(has(refused({"\u00a0-np", "2", "true"}), "U+00A0 (no-break space)"));
  CHECK(has(refused({"-np", "2", "\ufeff--tag", "none", "true"}), "U+FEFF (byte order mark)"));
  CHECK(has(refused({" -np", "2", "true"}), "' -np' begins with a blank: remove it"));
}

TEST_CASE("--no-detect leaves an allocation aside") {
  CHECK(parsed({"p"}).hosts.detect);
  CHECK_FALSE(parsed({"--no-detect", "p"}).hosts.detect);
}

TEST_CASE("--tf means TF_CONFIG and one GPU per rank") {
  CHECK(parsed({"p"}).placement.gpu_visibility == GpuVisibility::kAll);
  CHECK(parsed({"--tf", "p"}).placement.gpu_visibility == GpuVisibility::kOne);
  CHECK(parsed({"--mimic", "slurm", "p"}).frameworks.mimic == Mimic::kSlurm);
  CHECK(has(refused({"--mimic=lsf", "p"}), "choose one of openmpi, slurm, none"));
  CHECK(parsed({"--tf-roles", "worker:2", "p"}).placement.gpu_visibility == GpuVisibility::kOne);
  CHECK(parsed({"--tf", "--gpu-visibility", "all", "p"}).placement.gpu_visibility == GpuVisibility::kAll);
  CHECK(parsed({"--gpus-per-rank", "1", "p"}).placement.gpu_visibility == GpuVisibility::kAll);
  CHECK(parsed({"--gpus-per-rank", "2", "p"}).placement.gpu_visibility == GpuVisibility::kOne);
  CHECK(parsed({"--gpus-per-rank=2", "--gpu-visibility", "all", "p"}).placement.gpu_visibility == GpuVisibility::kAll);
  CHECK(parsed({"--gpus-per-rank=2", "p"}).placement.gpus_per_rank == 2);
  CHECK(has(refused({"--gpus-per-rank", "x", "p"}), "--gpus-per-rank x: 'x' is not a number of GPUs"));
  CHECK_FALSE(parsed({"--no-tf-config", "p"}).frameworks.tf_config);
}

TEST_CASE("a setting that is a flag says true by itself") {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  using Words = std::vector<std::string>;
  const Options encrypted = parsed({"--encrypt", "-np", "2", "p", "--checksum", "no"});
  CHECK(encrypted.environment.settings == Settings{{"encrypt", "true"}});
  CHECK(encrypted.program == Words{"p", "--checksum", "no"});
  CHECK(parsed({"--checksum", "p", "x"}).program == Words{"p", "x"});
  CHECK(parsed({"--encrypt=off", "p"}).environment.settings == Settings{{"encrypt", "off"}});
  // Flags with a separate value, as in older versions.
  const Options separate = parsed({"--huge-pages", "false", "--encrypt", "1", "p", "1"});
  CHECK(separate.environment.settings == Settings{{"encrypt", "1"}, {"huge_pages", "false"}});
  CHECK(separate.program == Words{"p", "1"});
  CHECK(has(refused({"--encrypt=maybe", "p"}), "--encrypt"));
  CHECK(has(refused({"--encrypt=", "p"}), "--encrypt has an empty value"));
  CHECK(has(refused({"--encrypt"}), "no program is given"));
  const auto help = parse_arguments({"--help"});
  CHECK(has(help.text, "--encrypt[=yes|no]"));
}

TEST_CASE("settings of the runtime are flags") {
  const Options options = parsed({"--fusion-threshold", "1MiB", "--backend=tcp", "-x", "A=1", "-xB", "p"});
  CHECK(options.environment.settings ==
        std::vector<std::pair<std::string, std::string>>{{"backend", "tcp"}, {"fusion_threshold", "1MiB"}});
  CHECK(options.environment.forwarded == std::vector<std::string>{"A=1", "B"});
}

TEST_CASE("a config file gives options, the command line wins") {
  const test::Sysroot directory;
  directory.write("c.toml",
                  "num_proc = 3\nfusion-threshold = \"2MiB\"\ncache_capacity = 7\noversubscribe = true\ngrace = 2.5\n");
  const std::string file = directory.path() + "c.toml";
  const Options options = parsed({"--config", file, "--grace", "1", "p"});
  CHECK(options.placement.ranks == 3);
  CHECK(options.placement.oversubscribe);
  CHECK(options.end.grace == 1);
  CHECK(options.environment.settings.empty());
  CHECK(options.environment.file_settings ==
        std::vector<std::pair<std::string, std::string>>{{"fusion_threshold", "2MiB"}, {"cache_capacity", "7"}});
  const Options flag = parsed({"--config", file, "--cache-capacity=9", "p"});
  CHECK(flag.environment.settings == std::vector<std::pair<std::string, std::string>>{{"cache_capacity", "9"}});
  CHECK(flag.environment.file_settings ==
        std::vector<std::pair<std::string, std::string>>{{"fusion_threshold", "2MiB"}});
  CHECK(has(refused({"--config", directory.path() + "absent.toml", "p"}), "absent.toml"));
}

TEST_CASE("what stands behind = in a config file is one value, as on the command line") {
  const test::Sysroot directory;
  directory.write("c.toml",
                  "hosts = [fe80::1]:4,h1:4 # two\n"
                  "tf-roles = chief=1,worker=7\n"
                  "backend = cpu:tcp,cuda:nccl\n"
                  "launch-with = kubectl exec -i {host} -- sh -c '{agent} # x'\n"
                  "x = NCCL_SOCKET_IFNAME=eth0,eth1\n"
                  "output-dir = \"a # b\"  # it's a comment\n"
                  "ssh-option = [\"A=1,2\", # one\n  B=3,\n]\n"
                  "x = B=[2]\n"
                  "v\n"
                  "grace = 2");
  const Options options = parsed({"--config", directory.path() + "c.toml", "p"});
  CHECK(options.hosts.list == "[fe80::1]:4,h1:4");
  CHECK(options.frameworks.tf_roles == "chief=1,worker=7");
  CHECK(options.environment.file_settings ==
        std::vector<std::pair<std::string, std::string>>{{"backend", "cpu:tcp,cuda:nccl"}});
  CHECK(options.hosts.launch_with == "kubectl exec -i {host} -- sh -c '{agent} # x'");
  CHECK(options.environment.forwarded == std::vector<std::string>{"NCCL_SOCKET_IFNAME=eth0,eth1", "B=[2]"});
  CHECK(options.output.directory == "a # b");
  CHECK(options.hosts.ssh.options == std::vector<std::string>{"A=1,2", "B=3"});
  CHECK(options.verbose);
  CHECK(options.end.grace == 2);
  CHECK(options.end.grace_given);
  CHECK_FALSE(parsed({"p"}).end.grace_given);
}

TEST_CASE("what is wrong in a config file is named with file, line and key") {
  const test::Sysroot directory;
  const std::string file = directory.path() + "bad.toml";
  const auto refusal_of = [&](const std::string& text) {
    directory.write("bad.toml", text);
    return refused({"--config", file, "p"});
  };
  CHECK(has(refusal_of("grace = 1\nfusion_treshold = 3\n"),
            file + ", line 2: fusion_treshold is not an option of distrun"));
  CHECK(has(refusal_of("fusion_treshold = 3\n"), "did you mean fusion-threshold?"));
  CHECK(has(refusal_of("# a comment\n\nbackend\n"), "line 3: backend has no value"));
  CHECK(has(refusal_of("backend =\n"), "line 1: backend has no value"));
  CHECK(has(refusal_of("backend = \"tcp\"\n\nbackend = \"shm\"\n"),
            "line 3: backend is given twice, here and in line 1"));
  CHECK(has(refusal_of("fusion_threshold = 1\nfusion-threshold = 1\n"), "line 2: fusion-threshold is given twice"));
  CHECK(has(refusal_of("[section]\n"), "line 1: [section]: a config file has no sections"));
  CHECK(has(refusal_of("x = [A=1,\n B=2\n"), "line 2: the list of x is not closed"));
  CHECK(has(refusal_of("cache_capacity = \"many\"\n"), "cache_capacity in the config file"));
  directory.write("good.toml", "oversubscribe\nx = [\"A=1\",\n \"B=2\"]\n");
  CHECK(parsed({"--config", directory.path() + "good.toml", "p"}).environment.forwarded.size() == 2);
}

TEST_CASE("a flag in a config file means what it means on the command line") {
  const test::Sysroot directory;
  const auto in_file = [&](const std::string& text) {
    directory.write("c.toml", text);
    return parsed({"--config", directory.path() + "c.toml", "p"});
  };
  for (const char* text :
       {"mpi\nexplain\ntf\n", "mpi =\nexplain =\ntf =\n", "mpi = true\nexplain = true\ntf = \"true\"\n"}) {
    INFO(text);
    const Options options = in_file(text);
    CHECK(options.hosts.mpi == "mpirun");
    CHECK(options.explain == "text");
    CHECK(options.frameworks.tf);
  }
  const Options absent = in_file("mpi = false\nexplain = false\ntf = false\nno-detect = false\n");
  CHECK(absent.hosts.mpi.empty());
  CHECK(absent.explain.empty());
  CHECK_FALSE(absent.frameworks.tf);
  CHECK(absent.hosts.detect);
  CHECK(in_file("mpi = hydra\nexplain = json\n").hosts.mpi == "hydra");
}

TEST_CASE("what is typed and would be ignored is refused") {
  const std::vector<std::string> agents = {"--agents", "2", "--key-file", "k"};
  const std::vector<std::string> command = {"--launch-with", "docker exec -i {host} sh -c {agent}"};
  const std::vector<std::vector<std::string>> ssh = {
      {"--ssh-port", "22"}, {"--ssh-identity=key"}, {"--ssh-option", "A=1"}};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    words.emplace_back("p");
    return words;
  };
  for (const auto& option : ssh) {
    const std::string name = option.front().substr(0, option.front().find('='));
    CHECK(
        has(refused(with(agents, option)), "leave out " + name + ": with --agents, something else starts the agents"));
    CHECK(has(refused(with(command, option)),
              "leave out " + name + ": with --launch-with, your command reaches the hosts"));
  }
  CHECK(has(refused(with(agents, command)), "leave out --launch-with: with --agents"));
  // For jobs that use ssh.
  const test::Sysroot directory;
  directory.write("c.toml", "ssh-port = 2222\nssh-identity = key\nlaunch-with = docker exec -i {host} sh -c {agent}\n");
  CHECK(parsed(with(agents, {"--config", directory.path() + "c.toml"})).hosts.agents == 2);
  CHECK(has(refused({"--config", directory.path() + "c.toml", "--ssh-port", "22", "p"}),
            "leave out --ssh-port: with --launch-with"));
}

TEST_CASE("help and version are answers, not errors") {
  const ParseOutcome help = parse_arguments({"--help"});
  CHECK(help.exit_code == 0);
  CHECK(has(help.text, "Start ranks"));
  CHECK(has(help.text, "--fusion-threshold"));
  CHECK_FALSE(has(help.text, "--sysroot"));
  for (const char* part : {"check -H HOST", "distrun agent --connect", "--mpi[=hydra|pmix|pmi2]"}) {
    CHECK(has(help.text, part));
  }
  const ParseOutcome version = parse_arguments({"--version"});
  CHECK(version.exit_code == 0);
  CHECK(version.text.starts_with("distrun "));
  CHECK(parse_arguments({}).exit_code == 64);
}

TEST_CASE("scripts and modules run in the user's Python") {
  const test::Sysroot tree;
  tree.write("venv/bin/python", "");
  tree.write("bin/distrun", "");
  tree.write("bin/python", "");
  tree.write("conda/bin/python", "");
  tree.write("admin/distrun", "");
  for (const char* file : {"venv/bin/python", "bin/distrun", "bin/python", "conda/bin/python", "admin/distrun"}) {
    std::filesystem::permissions(tree.path() + file, std::filesystem::perms::owner_all);
  }
  const Options script = parsed({"train.py", "--x"});
  const Environment venv = {{"VIRTUAL_ENV", tree.path() + "venv"}, {"PATH", tree.path() + "venv/bin"}};
  CHECK(resolve_command(script, venv, "distrun").words ==
        std::vector<std::string>{tree.path() + "venv/bin/python", "train.py", "--x"});
  CHECK(resolve_command(script, {}, tree.path() + "bin/distrun").words.front() == tree.path() + "bin/python");
  CHECK(resolve_command(script, {{"PATH", "/nowhere:" + tree.path() + "bin"}}, "distrun").words.front() ==
        tree.path() + "bin/python");
  CHECK(resolve_command(script, {}, "distrun").script == "train.py");
  // PATH begins with the folder of an administrator's distrun, or with that of a virtual environment's distrun.
  const std::string bin = tree.path() + "bin";
  const std::string in_conda = tree.path() + "conda/bin";
  Environment conda = {{"CONDA_PREFIX", tree.path() + "conda"}, {"CONDA_DEFAULT_ENV", "mine"}};
  conda["PATH"] = tree.path() + "admin:" + in_conda + "/:" + bin;
  CHECK(resolve_command(script, conda, "distrun").words.front() == in_conda + "/python");
  CHECK(resolve_command(script, conda, bin + "/distrun").words.front() == bin + "/python");
  conda["PATH"] = bin + ":" + in_conda;
  CHECK(resolve_command(script, conda, "distrun").words.front() == bin + "/python");
  conda["PATH"] = in_conda + ":" + bin;
  CHECK(resolve_command(script, conda, "distrun").words.front() == in_conda + "/python");
  conda["CONDA_DEFAULT_ENV"] = "base";
  CHECK(resolve_command(script, conda, "distrun").words.front() == bin + "/python");
  const Options module = parsed({"-m", "pkg", "a"});
  CHECK(resolve_command(module, venv, "distrun").words ==
        std::vector<std::string>{tree.path() + "venv/bin/python", "-m", "pkg", "a"});
  CHECK(resolve_command(parsed({"./prog", "a"}), venv, "distrun").words == std::vector<std::string>{"./prog", "a"});
}

TEST_CASE("a NUL byte in a config file is named with its place") {
  using namespace std::string_literals;
  const test::Sysroot tree;
  tree.write("cfg", "np = 2\nreport = a\0b\n"s);
  CHECK(has(refused({"--config", tree.path() + "cfg", "p"}), tree.path() + "cfg:2:11: this is a NUL byte"));
}

TEST_CASE("paths on this host may begin with ~, also in a config file") {
  const test::Sysroot tree;
  const Environment home = {{"HOME", tree.path() + "home"}};
  const std::string at_home = tree.path() + "home/";
  const auto options = [&home](const std::vector<std::string>& words) {
    const ParseOutcome outcome = parse_arguments(words, home);
    INFO(outcome.text);
    REQUIRE(outcome.run);
    return outcome.options;
  };
  CHECK(options({"--output-dir=~/logs", "p"}).output.directory == at_home + "logs");
  CHECK(options({"--report", "~/r.json", "p"}).output.report == at_home + "r.json");
  CHECK(options({"--hostfile=~/hosts", "p"}).hosts.file == at_home + "hosts");
  CHECK(options({"--env-file=~/e", "p"}).environment.file == at_home + "e");
  CHECK(options({"--agents", "1", "--key-file=~/key", "p"}).hosts.key_file == at_home + "key");
  tree.write("home/cfg", "output-dir = ~/logs\n");
  CHECK(options({"--config=~/cfg", "p"}).output.directory == at_home + "logs");
  CHECK(options({"--config", "~/cfg", "--output-dir=~", "p"}).output.directory == tree.path() + "home");
  // ssh has its own idea of ~, on each host where it runs.
  CHECK(options({"--ssh-identity=~/.ssh/id", "p"}).hosts.ssh.identity == "~/.ssh/id");
  CHECK(options({"p", "--data=~/x"}).program.back() == "--data=~/x");
}

TEST_CASE("a config file from Windows, and one in UTF-16") {
  const test::Sysroot tree;
  tree.write("c", "\xef\xbb\xbfnum-proc = 3\r\nx = A=1\r\n");
  const Options options = parsed({"--config", tree.path() + "c", "p"});
  CHECK(options.placement.ranks == 3);
  CHECK(options.environment.forwarded == std::vector<std::string>{"A=1"});
  tree.write("w", "\xff\xfen");
  CHECK(has(refused({"--config", tree.path() + "w", "p"}), tree.path() + "w: it is UTF-16 text. Save it as UTF-8"));
}

TEST_CASE("-- directly behind a script or module, which torchrun takes away, is told of") {
  CHECK(has(note_on_dashes(parsed({"-m", "pkg.train", "--", "--lr", "1"})), "the -- after pkg.train"));
  CHECK(has(note_on_dashes(parsed({"train.py", "--", "x"})), "the -- after train.py"));
  CHECK(note_on_dashes(parsed({"train.py", "--lr", "1", "--", "x"})).empty());
  CHECK(note_on_dashes(parsed({"--", "train.py", "x"})).empty());
  CHECK(note_on_dashes(parsed({"./a.out", "--", "x"})).empty());
  CHECK(note_on_dashes(parsed({"train.py"})).empty());
}

TEST_CASE("mpirun's second program is refused, and a colon of the program's own is not") {
  const std::string text = refused({"-np", "1", "./a", "x", ":", "-np", "3", "./b"});
  CHECK(has(text, "a job runs one program"));
  CHECK(has(text, "write -- before the program"));
  using Words = std::vector<std::string>;
  CHECK(parsed({"-np", "1", "--", "./a", ":", "-x"}).program == Words{"./a", ":", "-x"});
  CHECK(parsed({"-np", "1", "./a", ":", "x"}).program == Words{"./a", ":", "x"});
  CHECK(parsed({"-np", "1", "./a", "-x", ":"}).program == Words{"./a", "-x", ":"});
}

TEST_CASE("--tf-keras3-mwms puts its module in front of scripts and modules, and refuses what is neither") {
  using Words = std::vector<std::string>;
  const Options options = parsed({"--tf-keras3-mwms", "train.py"});
  CHECK(options.frameworks.tf);
  CHECK(options.placement.gpu_visibility == GpuVisibility::kOne);
  CHECK(has(refused({"--tf-keras3-mwms", "--no-tf-config", "p"}), "--no-tf-config"));

  const std::string start = our_module("m")[1];
  CHECK(*amended(options, false, {"python", "-u", "-X", "dev", "train.py", "-c"}) ==
        Words{"python", "-u", "-X", "dev", "-c", start, "distrun._keras3_mwms", "train.py", "-c"});
  CHECK(*amended(options, false, {"/venv/bin/python3", "-m", "pkg.train", "a"}) ==
        Words{"/venv/bin/python3", "-c", start, "distrun._keras3_mwms", "-m", "pkg.train", "a"});
  for (const Words& words : {Words{"sh", "train.sh"}, Words{"python", "-c", "pass"}, Words{"python"},
                             Words{"python", "-u"}, Words{"python", "-"}}) {
    CHECK(has(amended(options, false, words).status().message(), "patch_keras_mwms() in the program"));
  }
}

TEST_CASE("--torch-backend puts its module in front of scripts and modules, and knows distrun alone") {
  using Words = std::vector<std::string>;
  const Options options = parsed({"--torch-backend", "distrun", "train.py"});
  const std::string start = our_module("m")[1];
  CHECK(*amended(options, false, {"python", "train.py"}) ==
        Words{"python", "-c", start, "distrun._torch_backend", "train.py"});
  CHECK(has(amended(options, false, {"sh", "train.sh"}).status().message(), "init_process_group(\"distrun\")"));
  CHECK(has(refused({"--torch-backend", "nccl", "train.py"}), "write --torch-backend distrun"));
  CHECK(*amended(parsed({"train.py"}), false, {"sh", "train.sh"}) == Words{"sh", "train.sh"});
  CHECK(*amended(parsed({"--torch-backend", "distrun", "--tf-keras3-mwms", "x.py"}), false, {"python", "x.py"}) ==
        Words{"python", "-c", start, "distrun._torch_backend", "-m", "distrun._keras3_mwms", "x.py"});
}

TEST_CASE("with --encrypt Python programs are run by way of a module that refuses what goes around distrun") {
  using Words = std::vector<std::string>;
  const std::string start = our_module("m")[1];
  CHECK(*amended(parsed({"train.py"}), true, {"python", "-u", "train.py"}) ==
        Words{"python", "-u", "-c", start, "distrun._protected", "train.py"});
  CHECK(*amended(parsed({"--torch-backend", "distrun", "--tf-keras3-mwms", "x.py"}), true, {"python", "x.py"}) ==
        Words{"python", "-c", start, "distrun._protected", "-m", "distrun._torch_backend", "-m", "distrun._keras3_mwms",
              "x.py"});
  for (const Words& words : {Words{"sh", "train.sh"}, Words{"python", "-c", "pass"}, Words{"./a.out"}}) {
    CHECK(*amended(parsed({"train.py"}), true, words) == words);
  }
}

}  // namespace
}  // namespace distrun::launcher
