#include "launcher/plan/environment/program_input.h"

#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "launcher/cli/arguments.h"

namespace distrun::launcher {
namespace {

bool from_input(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> command;
  for (std::string word; words >> word;) command.push_back(word);
  INFO(line);
  return reads_program_from_input(command);
}

TEST_CASE("an interpreter without a script reads its program from standard input") {
  for (const char* line : {"python",
                           "python -",
                           "python3 -u -",
                           "/usr/bin/python3.12 - --lr 1",
                           "python3.13t -X dev -W error -",
                           "pypy3",
                           "python --check-hash-based-pycs never",
                           "python /dev/stdin x",
                           "python -i /dev/fd/0",
                           "python -- -",
                           "python /proc/self/fd/0",
                           "bash",
                           "bash -s",
                           "bash -s -- a b",
                           "sh -x",
                           "bash -eo pipefail",
                           "bash +x",
                           "bash --rcfile f",
                           "sh -es a",
                           "bash -",
                           "zsh -",
                           "dash /dev/stdin",
                           "perl",
                           "perl -w -",
                           "perl -Ilib -I x",
                           "ruby -",
                           "node",
                           "node -",
                           "node --require x",
                           "node --max-old-space-size=9",
                           "julia -t 4",
                           "julia -",
                           "R --no-save",
                           "Rscript -",
                           "lua -",
                           "php",
                           "php -f -",
                           "R -f -",
                           "R --file=/dev/stdin",
                           "ipython",
                           "ipython -",
                           "pwsh -Command -",
                           "awk -f /dev/stdin",
                           "awk -F : -f - data",
                           "gawk -f-",
                           "gawk --file=- x",
                           "sed -nf /dev/stdin x",
                           "make -f -"}) {
    CHECK(from_input(line));
  }
}

TEST_CASE("it does so behind another command too") {
  for (const char* line : {"env A=1 python -",
                           "numactl --membind 0 python",
                           "nice -n 5 bash -s",
                           "timeout 10 sh",
                           "uv run python -",
                           "uv run --with numpy -",
                           "conda run -n x python -",
                           "busybox sh -s",
                           "apptainer exec image.sif python3 -",
                           "/usr/bin/env python3",
                           "prlimit --nofile=1000 python -",
                           "prlimit --nofile=1000 python",
                           "setarch x86_64 python",
                           "unshare -r python -",
                           "unshare -r python",
                           "enroot start img python -",
                           "ch-run img -- python -",
                           "gosu me python -",
                           "doas -u me python",
                           "setpriv --reuid 1 --clear-groups python -",
                           "dumb-init python -",
                           "dumb-init -- python3",
                           "./wrap.sh python -",
                           "./wrap.sh python",
                           "bash wrap.sh python -",
                           "my-wrapper --level 3 bash -s x",
                           "busybox awk -f -",
                           "conda run -n python python -",
                           "conda run -n test python -",
                           "coverage run -",
                           "coverage run --branch /dev/stdin",
                           "python -m coverage run -",
                           "torchrun /dev/stdin",
                           "python -m cProfile -o out /dev/stdin",
                           "nsys profile -t cuda python -"}) {
    CHECK(from_input(line));
  }
}

TEST_CASE("it does so in a text for a shell or for env") {
  const auto reads = [](const std::vector<std::string>& command) { return reads_program_from_input(command); };
  CHECK(reads({"env", "-S", "python -"}));
  CHECK(reads({"env", "-Spython -"}));
  CHECK(reads({"env", "-i", "A=1", "-vS", "A=1 python -u -"}));
  CHECK(reads({"env", "--split-string=python -"}));
  CHECK(reads({"nice", "env", "-S", "python -"}));
  CHECK_FALSE(reads({"env", "-S", "python train.py", "-"}));
  CHECK(reads({"sh", "-c", "python -"}));
  CHECK(reads({"bash", "-lc", "module load x; cd y && A=1 exec python -u - --lr 1"}));
  CHECK(reads({"bash", "-c", "if true; then 'python'; fi"}));
  CHECK(reads({"su", "me", "-c", "python -"}));
  CHECK(reads({"script", "-qc", "python -", "/dev/null"}));
  CHECK_FALSE(reads({"sh", "-c", "python train.py"}));
  CHECK_FALSE(reads({"sh", "-c", "cat x | python -"}));
  CHECK_FALSE(reads({"sh", "-c", "python - <x.py"}));
  CHECK_FALSE(reads({"sh", "-c", "cd python && ./train"}));
  CHECK_FALSE(reads({"sh", "-c", "./a.out python"}));
  CHECK_FALSE(reads({"sh", "-c", "grep x -"}));
  CHECK_FALSE(reads({"sh", "-c"}));
  CHECK_FALSE(reads({"env", "-S"}));
  CHECK_FALSE(reads({"python", "-c", "python -"}));
}

TEST_CASE("standard input is data for every other program") {
  for (const char* line : {"python train.py",
                           "python train.py -",
                           "python -u train.py /dev/stdin",
                           "python -c pass",
                           "python -uc pass",
                           "python -m pkg",
                           "python -Im pkg",
                           "python --version",
                           "python -V",
                           "bash -c true",
                           "bash -lc true",
                           "bash run.sh",
                           "bash - run.sh",
                           "bash -o pipefail run.sh",
                           "bash --rcfile f run.sh",
                           "perl -e 1",
                           "perl -lne print",
                           "perl x.pl",
                           "ruby -rset x.rb",
                           "node x.js",
                           "node --eval 1",
                           "node -r x y.js",
                           "julia -e 1",
                           "julia -t 4 x.jl",
                           "R -f x.R",
                           "R --file=x.R",
                           "Rscript",
                           "Rscript x.R",
                           "php -r 1",
                           "tar xf -",
                           "cat",
                           "./a.out",
                           "tool --lang python",
                           "env A=1 python train.py",
                           "env",
                           "nice ./a.out -",
                           "pythonic",
                           "uv run train.py",
                           "uv run python train.py"}) {
    CHECK_FALSE(from_input(line));
  }
  CHECK_FALSE(reads_program_from_input({}));
}

TEST_CASE("a name of an interpreter may be data, and its input too") {
  for (const char* line : {"uv run python train.py -",
                           "tee -",
                           "cat -",
                           "grep python -",
                           "env grep python",
                           "xargs python -",
                           "awk -f x.awk -",
                           "awk {print} -",
                           "awk -f x.awk python -",
                           "sed -n p -",
                           "make -f x.mk python",
                           "R -f x.R -",
                           "python train.py python",
                           "python train.py --shell bash -s",
                           "python -m pkg python",
                           "prlimit --nofile=9 python train.py -",
                           "./a.out --lang bash",
                           "./a.out R",
                           "coverage run train.py -",
                           "torchrun train.py -",
                           "torchrun -m package.train -",
                           "deno run x.ts -",
                           "conda run -n python python train.py",
                           "bash wrap.sh python train.py -"}) {
    CHECK_FALSE(from_input(line));
  }
}

TEST_CASE("standard input is no program") {
  for (const char* word : {"-", "/dev/stdin"}) {
    const ParseOutcome outcome = parse_arguments({"-np", "2", word});
    CHECK_FALSE(outcome.run);
    CHECK(outcome.text.find("is no program. Write the program that reads it before it") != std::string::npos);
    CHECK(outcome.text.find("python -\n") != std::string::npos);
  }
}

TEST_CASE("the script of an interpreter is found") {
  CHECK(script_of({"python", "-u", "-X", "dev", "x.py", "y.py"}) == 4);
  CHECK(script_of({"/bin/bash", "run.sh"}) == 1);
  CHECK_FALSE(script_of({"python", "-m", "x"}));
  CHECK_FALSE(script_of({"python", "-c", "x"}));
  CHECK_FALSE(script_of({"python", "-"}));
  CHECK_FALSE(script_of({"bash", "-c", "x"}));
  CHECK_FALSE(script_of({"awk", "-f", "x"}));
  CHECK_FALSE(script_of({"./a.out", "x"}));
  CHECK_FALSE(script_of({}));
}

TEST_CASE("the program and its script may begin with ~, and an account must exist") {
  const auto program = [](const std::vector<std::string>& words) {
    const ParseOutcome outcome = parse_arguments(words, {{"HOME", "/h"}});
    INFO(outcome.text);
    REQUIRE(outcome.run);
    return outcome.options.program;
  };
  using Words = std::vector<std::string>;
  CHECK(program({"~/run.sh", "~/a"}) == Words{"/h/run.sh", "~/a"});
  CHECK(program({"~/s.py"}) == Words{"/h/s.py"});
  CHECK(program({"--", "~/s.py"}) == Words{"/h/s.py"});
  CHECK(program({"~/env/bin/python", "-u", "~/s.py", "~/a"}) == Words{"/h/env/bin/python", "-u", "/h/s.py", "~/a"});
  CHECK(program({"bash", "~/run.sh"}) == Words{"bash", "/h/run.sh"});
  CHECK(program({"python", "-c", "~/x"}) == Words{"python", "-c", "~/x"});
  CHECK(program({"-m", "~/x"}) == Words{"~/x"});
  for (const Words& words : {Words{"~no-such-account/a"}, Words{"python", "~no-such-account/a"},
                             Words{"--output-dir=~no-such-account/a", "p"}, Words{"--report", "~no-such-account", "p"},
                             Words{"--config", "~no-such-account/a", "p"}}) {
    const ParseOutcome outcome = parse_arguments(words, {{"HOME", "/h"}});
    CHECK_FALSE(outcome.run);
    CHECK(outcome.text.find("no account on this machine has the home ~no-such-account.") != std::string::npos);
  }
}

TEST_CASE("all ranks get a program from standard input, unless the user says who gets the input") {
  const auto input = [](const std::vector<std::string>& words) { return parse_arguments(words).options.output.input; };
  CHECK(input({"-np", "3", "python", "-"}).rank == InputRequest::kAll);
  CHECK(input({"-np", "3", "python", "-"}).program);
  CHECK(input({"-np", "3", "python", "train.py"}).rank == 0);
  CHECK(input({"-np", "3", "--stdin", "0", "python", "-"}).rank == 0);
  CHECK(input({"-np", "3", "--stdin", "none", "python", "-"}).rank == InputRequest::kNoRank);
  CHECK(input({"-np", "3", "--tty", "1", "python"}).rank == InputRequest::kNoRank);
  CHECK(input({"-np", "3", "-m", "python"}).rank == 0);
  CHECK_FALSE(input({"-np", "3", "--stdin", "0", "python", "-"}).program);
}

}  // namespace
}  // namespace distrun::launcher
