// launcher/plan/hosts/hostlist.h, -H of hosts.h, and the lists of launcher/plan/schedulers/slurm.h. The input comes
// from the command line or from Slurm. The first byte chooses.
#include "launcher/plan/hosts/hostlist.h"

#include "launcher/plan/hosts/hosts.h"
#include "launcher/plan/schedulers/slurm.h"
#include "test/fuzz/hosts.h"

namespace distrun::fuzz {
namespace {

void list(std::string_view text) {
  const auto names = launcher::parse_hostlist(text, "list");
  if (!names.ok()) return require_sane(names.status());
  require(names->size() <= launcher::kMaxHosts, "a list is bounded");
  for (const std::string& name : *names) require(!launcher::check_host_name(name), "an expanded name is a name");
  const auto items = launcher::compress_hostlist(*names);
  require(items.size() <= names->size(), "a compressed list is not longer");
  const auto again = launcher::parse_hostlist(launcher::join(items, ","), "list");
  require(again.ok() && *again == *names, "what is compressed expands to what it was");
}

void option(std::string_view text) {
  const auto hosts = launcher::parse_hosts(text);
  if (!hosts.ok()) return require_sane(hosts.status());
  require_safe(*hosts);
  const auto again = launcher::parse_hosts(launcher::as_option(*hosts));
  require(again.ok() && *again == *hosts, "hosts survive being written and read");
}

void counts(std::string_view text) {
  const auto numbers = launcher::parse_slurm_counts(std::string(text), "V");
  if (!numbers.ok()) return require_sane(numbers.status());
  require(numbers->size() <= launcher::kMaxHosts, "numbers by host are bounded");
  for (const int number : *numbers)
    require(number >= 1 && number <= launcher::kMaxRanks, "a number is a number of slots");
}

}  // namespace

int hostlist(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      list(text);
      break;
    case 1:
      option(text);
      break;
    default:
      counts(text);
  }
  return 0;
}

std::vector<Bytes> hostlist_seeds() {
  std::vector<Bytes> seeds;
  for (const char* text :
       {"0node[01-04,7],x", "0r[1-2]n[08-11]-ib,[1-3]", "0a[1-2]b[1-2]c[1]", "0n[99999-100001]", "0a,-b",
        "1me@node[01-04]:8,[fe80::1%eth0]:2,::1,x", "1a,b,a:2,a", "1::1:4", "1[1-2]:3", "22(x3),1,16(x2)", "25"}) {
    seeds.push_back(bytes_of(text));
    seeds.back()[0] = static_cast<std::byte>(text[0] - '0');
  }
  return seeds;
}

}  // namespace distrun::fuzz
