#include "launcher/plan/hosts/hostlist.h"

#include <stdio.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <random>

#include "test/support/text.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

using Names = std::vector<std::string>;

Names expand(const std::string& text) {
  INFO(text);
  const auto names = parse_hostlist(text, "list");
  INFO((names.ok() ? "" : names.status().message()));
  REQUIRE(names.ok());
  return *names;
}

std::string fault(std::string_view text) {
  INFO(text);
  const auto names = parse_hostlist(text, "list");
  REQUIRE_FALSE(names.ok());
  return names.status().message();
}

using distrun::test::has;

struct Example {
  std::string text;
  Names names;
};

// The answers of scontrol of Slurm 22.05. The last test asks the installed one.
const std::vector<Example>& examples() {
  static const std::vector<Example> all = {
      {"node[01-04,7]", {"node01", "node02", "node03", "node04", "node7"}},
      {"a", {"a"}},
      {"a,b,c", {"a", "b", "c"}},
      {"a,n[1-2],b", {"a", "n1", "n2", "b"}},
      {"n[9-11]", {"n9", "n10", "n11"}},
      {"n[09-11]", {"n09", "n10", "n11"}},
      {"n[0-03]", {"n0", "n1", "n2", "n3"}},
      {"n[01,1]", {"n01", "n1"}},
      {"n[99-101]", {"n99", "n100", "n101"}},
      {"n[01-3,05-7]", {"n01", "n02", "n03", "n05", "n06", "n07"}},
      {"n[1,1]", {"n1", "n1"}},
      {"n[1-2],n[1-2]", {"n1", "n2", "n1", "n2"}},
      {"[1-3]", {"1", "2", "3"}},
      {"n[10]", {"n10"}},
      {"n[1-2]m[3-4]", {"n1m3", "n1m4", "n2m3", "n2m4"}},
      {"n[1-2][3-4]", {"n13", "n14", "n23", "n24"}},
      {"n01[1-2]", {"n011", "n012"}},
      {"N_x.y-[1-2]", {"N_x.y-1", "N_x.y-2"}},
      {"n[99999999998-99999999999]", {"n99999999998", "n99999999999"}},
      {"n[0000000000000000000001]", {"n0000000000000000000001"}},
      {"a[1-2]b[1-2]c[1-2]", {"a1b1c1", "a1b1c2", "a2b1c1", "a2b1c2", "a1b2c1", "a1b2c2", "a2b2c1", "a2b2c2"}},
      {"a[1-2,5]b[01,3]c[1]", {"a1b01c1", "a2b01c1", "a5b01c1", "a1b3c1", "a2b3c1", "a5b3c1"}},
  };
  return all;
}

TEST_CASE("hostlists expand as scontrol show hostnames does") {
  for (const Example& example : examples()) CHECK(expand(example.text) == example.names);
}

TEST_CASE("text may follow the last bracket") {
  CHECK(expand("n[1-2]-ib") == Names{"n1-ib", "n2-ib"});
  CHECK(expand("r[1-2]n[01-02].cluster,x") ==
        Names{"r1n01.cluster", "r1n02.cluster", "r2n01.cluster", "r2n02.cluster", "x"});
}

TEST_CASE("a fault in a hostlist has its column") {
  CHECK(fault("n[3-1]").ends_with("\n  n[3-1]\n    ^"));
  CHECK(has(fault("n[3-1]"), "list, column 3: the first number of this range is the larger one"));
  CHECK(has(fault("a,n[1-2"), "column 4: this '[' has no matching ']'"));
  CHECK(has(fault("n1]"), "column 3: this ']' has no '['"));
  CHECK(has(fault("n[[1-2]]"), "column 3: expected a number"));
  CHECK(has(fault("n[1-[2-3]]"), "column 5: expected the number at which the range ends"));
  for (const char* text : {"n[]", "n[a]", "n[1,]", "n[,1]", "n[1,,2]", "n[1-10:3]", "n[0x10]", "bgl[123x456]"}) {
    CHECK(has(fault(text), "expected "));
  }
  CHECK(has(fault("n[1-]"), "column 5: expected the number"));
  CHECK(has(fault("n[-1]"), "column 3: expected a number"));
  CHECK(has(fault("n[1, 2]"), "column 5: expected a number"));
  CHECK(has(fault("n[1000000000000000000]"), "at most 18 digits"));
  for (const char* text : {"", ",", "a,,b", "a,", ",a"}) CHECK(has(fault(text), "a host name is missing here"));
}

TEST_CASE("names that a shell or an option parser could take for something else are refused") {
  CHECK(has(fault("a,-oProxyCommand=x"), "column 3: a host name cannot start with '-'"));
  CHECK(has(fault("-[1-2]"), "cannot start with '-'"));
  CHECK(has(fault(".a"), "cannot start with '.'"));
  for (const std::string part : {" ", ";", "$", "`", "'", "\"", "\\", "|", "&", "<", ">", "(", ")",       "{",
                                 "}", "*", "?", "~", "!", "#",  "%",  "@", ":", "/", "=", "^", "\xc3\xa4"}) {
    CHECK(has(fault("a" + part + "b"), "column 2: "));
    CHECK(has(fault("n[1-2]" + part), "column 7: "));
  }
  CHECK(has(fault("a\nb"), "'\\n' cannot be part of a host name"));
  CHECK(has(fault(std::string_view("a\0b", 3)), "'\\x00' cannot be part of a host name"));
  const std::string text = fault("a\x1b[31mb");
  CHECK(has(text, "'\\x1b' cannot be part of a host name"));
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("an expansion is counted before it is made") {
  CHECK(expand("n[1-100000]").size() == 100000);
  CHECK(has(fault("n[1-100001]"), "more than 100000 hosts"));
  CHECK(has(fault("n[0-99999],m"), "column 12: there are more than 100000 hosts"));
  CHECK(has(fault("n[0-999999999999999999]"), "more than 100000 hosts"));
  std::string deep = "n";
  for (int i = 0; i < 20; ++i) deep += "[0-999999999999999999]";
  CHECK(has(fault(deep), "at most 253 characters"));
  CHECK(has(fault("a[0-9][0-9][0-9][0-9][0-9][0-1]"), "more than 100000 hosts"));
  CHECK(has(fault(std::string(254, 'a')), "at most 253 characters"));
  CHECK(has(fault("n[" + std::string(253, '0') + "]"), "at most 253 characters"));
}

TEST_CASE("a long list is shown around its fault only") {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "node" + std::to_string(i) + ",";
  const std::string message = fault(text + "x y," + text);
  CHECK(message.size() < 400);
  const std::string shown = message.substr(message.find('\n') + 1);
  CHECK(shown[shown.find('^') - shown.find('\n') - 1] == ' ');
}

TEST_CASE("lists are written as short as their order allows") {
  CHECK(compress_hostlist({"node01", "node02", "node03", "node7"}) == Names{"node[01-03,7]"});
  CHECK(compress_hostlist({"n9", "n10", "n11"}) == Names{"n[9-11]"});
  CHECK(compress_hostlist({"n1"}) == Names{"n1"});
  CHECK(compress_hostlist({"a", "a", "a1", "a", "b2", "b1"}) == Names{"a", "a", "a1", "a", "b[2,1]"});
  CHECK(compress_hostlist({"n1-ib", "n2-ib"}) == Names{"n1-ib", "n2-ib"});
  CHECK(compress_hostlist({}).empty());
}

TEST_CASE("what is compressed expands to what it was") {
  std::mt19937 random(5);
  const auto below = [&random](std::size_t n) { return random() % n; };
  const Names parts = {"n", "rack", "a-", "0", "9", "00", "99", "", "x1y", ".e", "_", "123456789012345678"};
  for (int round = 0; round < 2000; ++round) {
    Names names;
    for (std::size_t i = 0, n = 1 + below(30); i < n; ++i) {
      const std::string prefix = "h" + parts[below(parts.size())];
      const std::string digits = std::to_string(below(120));
      const std::string zeros(below(3), '0');
      switch (below(4)) {
        case 0:
          names.push_back(prefix + parts[below(parts.size())]);
          break;
        case 1:
          names.push_back(prefix + zeros + digits);
          break;
        default:
          for (std::size_t k = 0, first = below(12); k < 4; ++k) names.push_back(prefix + std::to_string(first + k));
      }
    }
    const Names items = compress_hostlist(names);
    CHECK(items.size() <= names.size());
    CHECK(expand(join(items, ",")) == names);
  }
}

Names lines_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string out;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = ::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;) out.append(buffer.data(), n);
  Names lines;
  for (std::size_t start = 0, end = 0; (end = out.find('\n', start)) != std::string::npos; start = end + 1) {
    lines.push_back(out.substr(start, end - start));
  }
  return lines;
}

std::string random_list(std::mt19937& random) {
  const auto number = [&random](std::uint32_t n) { return static_cast<int>(random() % n); };
  std::string text;
  for (int item = 0, items = 1 + number(3); item < items; ++item) {
    if (item > 0) text += ',';
    text += "h" + std::to_string(number(3));
    for (int bracket = 0, brackets = number(4); bracket < brackets; ++bracket) {
      text += std::string(1, "abx-"[number(4)]) + "[";
      for (int range = 0, ranges = 1 + number(3); range < ranges; ++range) {
        const int first = number(12);
        if (range > 0) text += ',';
        text += std::string(static_cast<std::size_t>(number(3)), '0') + std::to_string(first);
        if (number(2) == 0) text += '-' + std::to_string(first + number(4));
      }
      text += ']';
    }
  }
  return text;
}

TEST_CASE("scontrol show hostnames agrees") {
  if (lines_of("command -v scontrol").empty()) SKIP("scontrol is not installed (apt install slurm-client)");
  const test::Sysroot directory;
  directory.write("slurm.conf", "ClusterName=test\nSlurmctldHost=localhost\nAuthType=auth/none\nNodeName=x\n");
  std::vector<std::string> lists;
  for (const Example& example : examples()) lists.push_back(example.text);
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) lists.push_back(random_list(random));
  for (const std::string& list : lists) {
    const std::string command = "SLURM_CONF=" + directory.path() + "slurm.conf scontrol show hostnames '" + list + "'";
    INFO(list);
    CHECK(expand(list) == lines_of(command + " 2>&1"));
  }
}

}  // namespace
}  // namespace distrun::launcher
