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
                           "php"}) {
    CHECK(from_input(line));
  }
}

TEST_CASE("it does so behind another command too") {
  for (const char* line : {"env A=1 python -", "numactl --membind 0 python", "nice -n 5 bash -s", "timeout 10 sh",
                           "uv run python -", "uv run --with numpy -", "conda run -n x python -", "busybox sh -s",
                           "apptainer exec image.sif python3 -", "/usr/bin/env python3"}) {
    CHECK(from_input(line));
  }
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

TEST_CASE("all ranks get a program from standard input, unless the user says who gets the input") {
  const auto input = [](const std::vector<std::string>& words) { return parse_arguments(words).options.output.input; };
  CHECK(input({"-np", "3", "python", "-"}).rank == InputRequest::kAll);
  CHECK(input({"-np", "3", "python", "-"}).program);
  CHECK(input({"-np", "3", "python", "train.py"}).rank == 0);
  CHECK(input({"-np", "3", "--stdin", "0", "python", "-"}).rank == 0);
  CHECK(input({"-np", "3", "--stdin", "none", "python", "-"}).rank == InputRequest::kNobody);
  CHECK(input({"-np", "3", "--tty", "1", "python"}).rank == InputRequest::kNobody);
  CHECK(input({"-np", "3", "-m", "python"}).rank == 0);
  CHECK_FALSE(input({"-np", "3", "--stdin", "0", "python", "-"}).program);
}

}  // namespace
}  // namespace distrun::launcher
