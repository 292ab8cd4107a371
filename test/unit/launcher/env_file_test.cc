#include "launcher/plan/environment/env_file.h"

#include <catch2/catch_test_macros.hpp>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs read(const std::string& text) {
  const auto out = parse_env_file(*unix_text(text, "f"), "f", {{"HOME", "/h"}, {"LANG", "C"}});
  INFO((out.ok() ? "" : out.status().message()));
  REQUIRE(out.ok());
  return *out;
}

std::string fault(const std::string& text) {
  const auto out = parse_env_file(text, "f", {{"HOME", "/h"}});
  REQUIRE_FALSE(out.ok());
  return out.status().message().substr(0, out.status().message().find('\n'));
}

TEST_CASE("a file of variables has names and values, and the user's own values") {
  CHECK(read("# c\n\nA=1 2\nB=\nHOME\nGONE\n  C=x#y # z \n") ==
        Pairs{{"A", "1 2"}, {"B", ""}, {"HOME", "/h"}, {"C", "x#y # z"}});
  CHECK(read("A={\"x\": 1}\nB=it's\nC=$HOME\nD=~/x\nE=a=b") ==
        Pairs{{"A", "{\"x\": 1}"}, {"B", "it's"}, {"C", "$HOME"}, {"D", "~/x"}, {"E", "a=b"}});
  CHECK(fault("A=1\n2B=3\n") == "f:2:1: expected NAME=value or NAME");
  CHECK(fault("A = 1\n") == "f:1:2: leave out the blanks before =");
  CHECK(fault("export = 1\n") == "f:1:8: expected NAME=value or NAME");
  const std::string longest(128 * 1024 - 1 - 2, 'x');  // with "A=" and the final NUL
  CHECK(parse_env_file("A=" + longest, "f", {}).ok());
  CHECK(fault("#\nA=" + longest + "x\n").starts_with("f:2: A is longer than a variable may be in Linux"));
}

TEST_CASE("a file from Windows has the same variables") {
  CHECK(read("\xef\xbb\xbf"
             "A=1\r\nB=x y\r\n\r\n# c\r\nexport C='z'\r\n") == Pairs{{"A", "1"}, {"B", "x y"}, {"C", "z"}});
}

TEST_CASE("quotes around a value are not a part of it") {
  CHECK(read("A=\"x y\"\nB='z'\nC=\"\"\nD='#' # c\nE=\"a'b\"\nF='\"'\nG=\"\\\"\\\\\\$x\\n\"\nH=\"$HOME\"\n") ==
        Pairs{{"A", "x y"},
              {"B", "z"},
              {"C", ""},
              {"D", "#"},
              {"E", "a'b"},
              {"F", "\""},
              {"G", "\"\\$x\\n"},
              {"H", "$HOME"}});
  CHECK(fault("A=\"x\n").starts_with("f:1:3: this quote has no end on its line"));
  CHECK(fault("A='x'y\n").starts_with("f:1:6: expected nothing after the quote"));
  CHECK(fault("A='it'\\''s'\n").starts_with("f:1:7: expected nothing after the quote"));
}

TEST_CASE("lines with export mean what they mean in a shell") {
  CHECK(read("export A=1\nexport\tB=\"x y\" # c\nexport C=1 # c\nexport D=a#b\ndeclare -x E=\"5\"\nexport LANG\n"
             "export F=~/data\nexport G='$HOME'\nexport H=\"\\$5\"\nexport I=5$\nexported=1\n") ==
        Pairs{{"A", "1"},
              {"B", "x y"},
              {"C", "1"},
              {"D", "a#b"},
              {"E", "5"},
              {"LANG", "C"},
              {"F", "/h/data"},
              {"G", "$HOME"},
              {"H", "$5"},
              {"I", "5$"},
              {"exported", "1"}});
  CHECK(fault("export A=1 B=2\n").starts_with("f:1:12: write a value with blanks in quotes"));
  CHECK(fault("export PATH=$HOME/bin\n").starts_with("f:1:13: distrun replaces no $"));
  CHECK(fault("export A=\"${X}\"\n").starts_with("f:1:11: distrun replaces no $"));
  CHECK(fault("export A=`date`\n").starts_with("f:1:10: distrun replaces no $"));
  CHECK(fault("export A=a\\ b\n").starts_with("f:1:13: write a value with blanks"));
  CHECK(fault("export A=a'b'\n").starts_with("f:1:11: write the whole value in quotes, as in export A='...'"));
}

}  // namespace
}  // namespace distrun::launcher
