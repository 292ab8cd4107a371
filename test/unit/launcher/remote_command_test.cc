#include "launcher/spawn/remote_command.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "launcher/spawn/agent_spawner.h"
#include "launcher/spawn/process.h"
#include "test/support/text.h"

namespace distrun::launcher {
namespace {

using distrun::test::has;

std::string output_of(const std::string& shell, const std::string& script,
                      const std::vector<std::string>& environment) {
  auto pipe = make_pipe();
  REQUIRE(pipe.ok());
  ProcessSpec spec{.program = shell, .argv = {shell, "-c", script}, .environment = environment};
  spec.descriptors.emplace_back(pipe->second.get(), 1);
  auto process = start_process(spec);
  REQUIRE(process.ok());
  pipe->second.reset();
  std::string out;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(pipe->first.get(), buffer, sizeof buffer)) > 0;) {
    out.append(buffer, static_cast<std::size_t>(n));
  }
  int status = 0;
  ::waitpid(process->pid(), &status, 0);
  return out;
}

// The words that a real shell makes of a command line, each ended by NUL.
std::string shell_words(const std::string& line) {
  return output_of("/bin/sh", "for word in " + line + "; do printf '%s\\0' \"$word\"; done", {});
}

TEST_CASE("quoted text reaches a shell's program byte by byte") {
  std::mt19937 random(7);
  const std::string nasty = "'\"\\$`;|&<>(){}[]*?~#!-= \t\n\r\x01\x7f\xc3\xa9/a";
  for (int round = 0; round < 40; ++round) {
    std::string line;
    std::string expected;
    for (int word = 0; word < 20; ++word) {
      std::string text;
      for (std::size_t i = 0, n = random() % 12; i < n; ++i) text += nasty[random() % nasty.size()];
      line += " " + shell_quote(text);
      expected += text + '\0';
    }
    CHECK(shell_words(line) == expected);
  }
}

TEST_CASE("words are split as a shell does, and nothing is expanded") {
  const auto words = split_words("kubectl exec  -i 'a b' \"c \\\" d\" e\\ f '' -- $HOME");
  REQUIRE(words.ok());
  CHECK(*words == std::vector<std::string>{"kubectl", "exec", "-i", "a b", "c \" d", "e f", "", "--", "$HOME"});
  CHECK_FALSE(split_words("a 'b").ok());
}

TEST_CASE("ssh gets the host as one word after --, and its options before") {
  const SshOptions options{.port = 2222, .identity = "/k ey", .options = {"StrictHostKeyChecking=no"}};
  const auto argv = ssh_argv(options, "me", "h1", "command", 902);
  CHECK(argv.front() == "ssh");
  CHECK(std::vector<std::string>(argv.end() - 3, argv.end()) == std::vector<std::string>{"--", "h1", "command"});
  const auto at = [&](const std::string& word) { return std::find(argv.begin(), argv.end(), word); };
  CHECK(*(at("-p") + 1) == "2222");
  CHECK(*(at("-i") + 1) == "/k ey");
  CHECK(*(at("-l") + 1) == "me");
  CHECK(at("StrictHostKeyChecking=no") < at("BatchMode=yes"));
  CHECK(at("StrictHostKeyChecking=no") < at("ControlMaster=no"));
  CHECK(at("ControlMaster=no") < at("--"));
}

TEST_CASE("what a user's ssh_config has for logins is overridden, as far as this ssh knows the options") {
  const auto has_option = [](int version, const std::string& option) {
    const auto argv = ssh_argv({}, "", "h1", "command", version);
    const auto at = std::find(argv.begin(), argv.end(), option);
    return at != argv.end() && *(at - 1) == "-o";
  };
  for (const int version : {0, 704, 706, 806, 807, 902, 1001}) {
    INFO(version);
    CHECK(has_option(version, "Tunnel=no"));
    CHECK(has_option(version, "LogLevel=INFO"));
    CHECK(has_option(version, "RemoteCommand=none") == (version >= 706));
    for (const char* option : {"SessionType=default", "StdinNull=no", "ForkAfterAuthentication=no"}) {
      CHECK(has_option(version, option) == (version >= 807));
    }
  }
}

TEST_CASE("the version of ssh") {
  CHECK(ssh_version("OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL 3.0.19 27 Jan 2026\n") == 902);
  CHECK(ssh_version("OpenSSH_7.4p1, OpenSSL 1.0.2k-fips  26 Jan 2017") == 704);
  CHECK(ssh_version("a warning\nOpenSSH_10.0p2, OpenSSL") == 1000);
  CHECK(ssh_version("OpenSSH_for_Windows_8.1p1, LibreSSL 3.0.2") == 801);
  for (const char* text : {"", "Dropbear v2022.83", "Sun_SSH_1.1.4", "OpenSSH_", "OpenSSH_x.y", "OpenSSH_9"}) {
    INFO(text);
    CHECK(ssh_version(text) == 0);
  }
}

TEST_CASE("what srun says comes with the way out") {
  const std::string over =
      "srun: error: Unable to confirm allocation for job 4242: Invalid job id specified\n"
      "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 4242\n";
  CHECK(has(start_failure({.exit_code = 1, .printed = over}),
            "the job is over, but its variables are still set in this shell"));
  CHECK(has(start_failure({.exit_code = 1, .printed = over}), "add --no-detect"));
  CHECK(has(start_failure({.exit_code = 1, .printed = "srun: error: Unable to contact slurm controller"}),
            "add --no-detect"));
  CHECK_FALSE(has(start_failure({.exit_code = 1, .printed = "docker: error"}), "--no-detect"));
}

TEST_CASE("any login shell runs the launcher's own file where it is there, else the one on PATH") {
  std::string folder = (std::filesystem::temp_directory_path() / "it's $HOME; `a` XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const auto place = [&](const std::string& name) {
    const std::filesystem::path path = std::filesystem::path(folder) / name / "distrun";
    std::filesystem::create_directory(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\necho " << name << " \"$@\"\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  };
  const std::string own = place("own");
  const std::vector<std::string> environment = {"PATH=" + std::filesystem::path(place("found")).parent_path().string() +
                                                ":/usr/bin:/bin"};
  for (const std::string shell : {"/bin/sh", "/bin/bash", "/bin/zsh", "/bin/csh", "/usr/bin/fish"}) {
    if (!std::filesystem::exists(shell)) continue;
    INFO(shell);
    CHECK(output_of(shell, agent_command(own, "--guard"), environment) == "own agent --guard\n");
    CHECK(output_of(shell, agent_command(own + "2", "--join"), environment) == "found agent --join\n");
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("--launch-with puts host and agent into its words") {
  const auto argv = launch_argv("docker exec -i box-{host} sh -c {agent}", "", "h1", "exec distrun agent");
  REQUIRE(argv.ok());
  CHECK(*argv == std::vector<std::string>{"docker", "exec", "-i", "box-h1", "sh", "-c", "exec distrun agent"});
  CHECK(has(launch_argv("docker exec {host}", "", "h", "a").status().message(), "{agent}"));
  const auto with_user = launch_argv("ssh -l {user} {host} {agent}", "me", "h1", "a");
  REQUIRE(with_user.ok());
  CHECK(*with_user == std::vector<std::string>{"ssh", "-l", "me", "h1", "a"});
  CHECK(has(launch_argv("ssh {host} {agent}", "me", "h1", "a").status().message(), "because of me@h1"));
  CHECK(has(launch_argv("ssh -l {user} {host} {agent}", "", "h1", "a").status().message(), "write user@h1"));
}

TEST_CASE("a command that cannot start agents is named") {
  const auto why = [](const std::string& command) {
    const SpawnOptions options{.launch_with = command + " {host} {agent}"};
    const auto started = make_spawner(options)->start("h1", "");
    REQUIRE_FALSE(started.ok());
    return started.status().message();
  };
  CHECK(why("/no/such") == "/no/such does not exist, but distrun needs it to start its agents on other hosts");
  CHECK(why("./no-such").starts_with("./no-such does not exist"));
  CHECK(why("/etc").starts_with("/etc is a folder, but"));
  CHECK(why("/etc/passwd").starts_with("/etc/passwd is not executable, but"));
  CHECK(why("/etc/passwd/x").starts_with("/etc/passwd/x: Not a directory, but"));
  CHECK(why("no-such").starts_with("no-such is not in PATH, but"));
}

TEST_CASE("what ssh says comes with a cure") {
  CHECK(has(start_failure(
                {.exit_code = 255, .printed = "banner\r\nme@h: Permission denied (publickey).\r\n", .by_ssh = true}),
            "ssh-copy-id"));
  CHECK(has(start_failure({.exit_code = 255, .printed = "Host key verification failed.\n", .by_ssh = true}),
            "StrictHostKeyChecking"));
  const std::string changed =
      start_failure({.exit_code = 255,
                     .printed = "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
                                "It is also possible that a host key has just been changed.\r\n"
                                "Host key for [h]:2222 has changed and you have requested strict checking.\r\n"
                                "Host key verification failed.\r\n",
                     .by_ssh = true});
  CHECK(has(changed, "ssh-keygen -R HOST"));
  CHECK_FALSE(has(changed, "not known on this machine"));
  CHECK_FALSE(has(changed, "accept-new"));
  CHECK(has(start_failure(
                {.exit_code = 255, .printed = "ssh: connect to host h port 22: Connection refused", .by_ssh = true}),
            "--ssh-port"));
  CHECK(has(start_failure({.exit_code = 127, .printed = "sh: 1: exec: distrun: not found", .by_ssh = true}),
            "Install the same version"));
  CHECK(start_failure({.exit_code = 255, .printed = "", .by_ssh = true, .greeted = true}) ==
        "ssh ended without a message. Was the agent on that host killed?");
  CHECK(has(start_failure({.exit_code = 255, .printed = "", .by_ssh = true}),
            "before the agent began. Was the login shell killed on that host? Check the start-up files"));
  CHECK(start_failure({.exit_code = 137, .printed = "", .by_ssh = true}) == "its agent was killed by signal 9");
  // The message of another launch command. distrun's ssh options do not help there.
  CHECK(start_failure({.exit_code = 255, .printed = "open /root/.kube/config: Permission denied"}) ==
        "open /root/.kube/config: Permission denied");
  CHECK(start_failure({.exit_code = 255, .printed = ""}) == "its agent ended with code 255");
}

TEST_CASE("of an agent that does not answer it is told what came in its place") {
  CHECK(has(no_answer(60, {.printed = ""}, LinkEnd::kUnknown),
            "not answered within 60 s (--start-timeout). Check that programs start quickly"));
  CHECK_FALSE(has(no_answer(60, {.printed = "\r\n"}, LinkEnd::kUnknown), "has printed"));
  const std::string slow =
      no_answer(90.5, {.printed = "Welcome\r\nINFO: Converting SIF file to temporary sandbox...\r\n", .by_ssh = true},
                LinkEnd::kUnknown);
  CHECK(has(slow, "within 90.5 s"));
  CHECK_FALSE(has(slow, "MTU"));
  CHECK(has(no_answer(60, {.printed = "", .by_ssh = true}, LinkEnd::kUnknown),
            "small packets pass and large ones do not: check the MTU"));
  CHECK_FALSE(has(no_answer(60, {.printed = ""}, LinkEnd::kUnknown), "MTU"));
  CHECK(has(no_answer(60, {.printed = "", .by_ssh = true}, LinkEnd::kLargeSilent),
            ". Between this machine and it, small messages pass, large ones do not: check the MTU"));
  CHECK_FALSE(has(no_answer(60, {.printed = "", .by_ssh = true}, LinkEnd::kSilent), "MTU"));
  CHECK(slow.ends_with("has printed: Welcome\nINFO: Converting SIF file to temporary sandbox..."));
}

TEST_CASE("a login shell that does not start the agent is named with its files") {
  const auto ended = [](int code, const std::string& printed) {
    return start_failure({.exit_code = code, .printed = printed, .by_ssh = true});
  };
  CHECK(has(ended(0, ""), "its login shell ended with code 0 and did not start the agent. Check the start-up files"));
  CHECK(has(ended(1, "No quota.\r\n"),
            "(~/.bashrc, ~/.profile): do they exit, or start another program? It printed: No quota."));
  CHECK_FALSE(has(ended(255, "Connection closed"), "~/.bashrc"));
  CHECK_FALSE(has(ended(127, ""), "~/.bashrc"));
  CHECK_FALSE(has(start_failure({.exit_code = 1, .by_ssh = true, .greeted = true}), "~/.bashrc"));
  CHECK_FALSE(has(start_failure({.exit_code = 1}), "~/.bashrc"));
  CHECK(has(no_answer(60, {.by_ssh = true}, LinkEnd::kUnknown),
            "that the start-up files of the login shell on that host"));
  CHECK(has(login_failure(LoginFault::kWaits, ""), "waits for input and does not start the agent. Check the start-up"));
  CHECK(has(login_failure(LoginFault::kEnds, "hi\n"), "start another shell or program"));
  CHECK(login_failure(LoginFault::kEnds, "hi\n").ends_with(". It printed: hi"));
  CHECK(has(login_failure(LoginFault::kRedirected, ""), "exec 1>&2"));
  CHECK(has(login_failure(LoginFault::kPrints, "1\n2\n"),
            "64 KiB of other output came before the first message of the agent. Check the start-up files"));
  CHECK(login_failure(LoginFault::kPrints, "1\n2\n").ends_with(": do they print it? It printed: 1\n2"));
}

TEST_CASE("an agent without input names what took it") {
  const CommandEnd end{.exit_code = 0, .by_ssh = true, .greeted = true};
  CHECK(start_failure(end) ==
        "its agent runs, but its standard input is at its end. Check the start-up files of the login shell on that "
        "host (~/.bashrc, ~/.profile): do they redirect it (exec </dev/null)?");
  CHECK(has(start_failure({.exit_code = 0, .greeted = true}), "kubectl exec -i"));
  CHECK_FALSE(has(start_failure({.exit_code = 0, .by_ssh = true, .greeted = true, .answered = true}), "input"));
  CHECK_FALSE(has(start_failure({.exit_code = 1, .by_ssh = true, .greeted = true}), "input"));
}

TEST_CASE("a host may come later, unless it refuses the login, is not known or has no distrun") {
  const auto later = [](int code, const std::string& printed) {
    return may_come_later({.exit_code = code, .printed = printed, .by_ssh = true});
  };
  for (const char* said :
       {"ssh: Could not resolve hostname h1: Name or service not known",
        "ssh: connect to host h1 port 22: Connection refused", "ssh: connect to host h1 port 22: No route to host",
        "ssh: connect to host h1 port 22: Connection timed out",
        "kex_exchange_identification: read: Connection reset by peer", "Connection closed by 10.0.0.1 port 22", ""}) {
    INFO(said);
    CHECK(later(255, said));
  }
  for (const char* said :
       {"me@h1: Permission denied (publickey).", "Host key verification failed.",
        "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures",
        "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their offer: x"}) {
    INFO(said);
    CHECK_FALSE(later(255, said));
  }
  CHECK(later(1, "System is booting up."));
  CHECK_FALSE(later(127, "sh: 1: exec: distrun: not found"));
  CHECK(may_come_later({.exit_code = 1, .printed = "Error from server: pod is not running: Permission denied"}));
  CHECK_FALSE(may_come_later({.exit_code = 127, .printed = ""}));
}

TEST_CASE("what another program has printed cannot command the terminal") {
  const std::string printed = "\x1b]0;title\a\x1b[2Jgone\r\nline two\t\xff\n";
  const std::string safe = "\\x1b]0;title\\x07\\x1b[2Jgone\nline two\\t\xef\xbf\xbd";
  CHECK(has(start_failure({.exit_code = 1, .printed = printed, .by_ssh = true}), safe));
  CHECK(has(start_failure({.exit_code = 1, .printed = printed}), safe));
  CHECK(has(no_answer(60, {.printed = printed}, LinkEnd::kUnknown), safe));
  CHECK(has(login_failure(LoginFault::kWaits, printed), safe));
}

TEST_CASE("ssh that gave up is told from banners of hosts that it reached") {
  for (const char* said :
       {"me@h1.example: Permission denied (publickey,password).\r\n", "Welcome\nHost key verification failed.\r\n",
        "Connection timed out during banner exchange", "ssh: connect to host h2 port 22: Network is unreachable\n",
        "a\n\nssh: Could not resolve hostname nosuch: Name or service not known\n"}) {
    INFO(said);
    CHECK(ssh_gave_up(said));
    CHECK(failed_ssh(said).find_first_of("\r\n") == std::string_view::npos);
  }
  for (const char* said : {"", "Permission denied to all but staff. Idle sessions are timed out.\n",
                           "Questions: admin@example.org\nWithout an account: Permission denied (see the wiki)\n",
                           "If ssh: connect to host login says Connection refused, wait.\n",
                           "train.py: Permission denied (os error 13)\n"}) {
    INFO(said);
    CHECK_FALSE(ssh_gave_up(said));
  }
  CHECK(failed_ssh("Welcome\nHost key verification failed.\r\n") == "Host key verification failed.");
}

}  // namespace
}  // namespace distrun::launcher
