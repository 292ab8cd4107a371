// Files that name hosts: --hostfile in all dialects, and the files of schedulers
// (launcher/plan/schedulers/allocation.h). The first byte chooses.
#include <algorithm>
#include <array>

#include "launcher/plan/hosts/hostlist.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/schedulers/allocation.h"
#include "test/fuzz/hosts.h"

namespace distrun::fuzz {
namespace {

struct Source {
  const char* variable;
  bool is_file;
};

constexpr std::array<Source, 8> kSources = {{
    {"PBS_NODEFILE", true},
    {"LSB_MCPU_HOSTS", false},
    {"PE_HOSTFILE", true},
    {"OMPI_MCA_orte_default_hostfile", true},
    {"HYDRA_HOST_FILE", true},
    {"LSB_DJOB_HOSTFILE", true},
    {"SLURM_JOB_NODELIST", false},
    {"PRTE_MCA_prte_default_hostfile", true},
}};

void file(const std::string& text) {
  const auto plain = launcher::unix_text(text, "f");
  if (!plain.ok()) return require_sane(plain.status());
  const auto hosts = launcher::parse_hostfile(*plain, "file");
  if (!hosts.ok()) return require_sane(hosts.status());
  require(!hosts->empty() && hosts->size() <= launcher::kMaxHosts, "a file's hosts are bounded");
  require_safe(*hosts);
  for (const launcher::HostSlots& host : *hosts) {
    require(host.max_slots == 0 || host.slots.value_or(1) <= host.max_slots, "slots keep to max_slots");
  }
}

void allocation(const Source& source, const std::string& text) {
  const auto found = launcher::detect_allocation({{source.variable, source.is_file ? "/nodes" : text}},
                                                 [&text](const std::string&) { return text; });
  if (!found.ok()) return require_sane(found.status());
  if (!*found) return;
  require(!(*found)->hosts.empty(), "an allocation has hosts");
  require_safe((*found)->hosts);
}

bool is_part_of_a_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool is_word(std::string_view text, std::string_view also) {
  return !text.empty() && text.front() != '-' && text.size() <= 400 &&
         std::all_of(text.begin(), text.end(),
                     [also](char c) { return is_part_of_a_name(c) || also.find(c) != std::string_view::npos; });
}

}  // namespace

void require_safe(const launcher::HostSlots& host) {
  require(is_word(host.name, host.name.find(':') == std::string::npos ? "" : ":%"), "a host's name is a plain word");
  require(host.user.empty() || is_word(host.user, "@\\+=/"), "a user's name is a word as ssh takes it");
  require(!host.slots || (*host.slots >= 0 && *host.slots <= launcher::kMaxRanks), "slots are bounded");
}

void require_safe(std::vector<launcher::HostSlots> hosts) {
  for (const launcher::HostSlots& host : hosts) require_safe(host);
  const std::size_t all = hosts.size();
  const std::string left_out = launcher::leave_out_without_slots(hosts);
  require(left_out.empty() == (hosts.size() == all), "a host that is left out is named");
  for (const launcher::HostSlots& host : hosts) require(host.slots != 0, "the hosts of a job have slots");
}

void require_sane(const Status& error) {
  require(error.message().size() < 1000, "an error text is bounded");
  const auto control = [](char c) { return c != '\n' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f); };
  require(std::none_of(error.message().begin(), error.message().end(), control), "an error text can be shown");
}

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

int hostfile(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t which = data[0] % (kSources.size() + 1);
  if (which == kSources.size()) {
    file(text);
  } else {
    allocation(kSources[which], text);
  }
  return 0;
}

std::vector<Bytes> hostfile_seeds() {
  std::vector<Bytes> seeds;
  const auto add = [&seeds](std::size_t which, std::string_view text) {
    Bytes seed{static_cast<std::byte>(which)};
    const Bytes bytes = bytes_of(text);
    seed.insert(seed.end(), bytes.begin(), bytes.end());
    seeds.push_back(std::move(seed));
  };
  const std::size_t plain = kSources.size();
  add(plain, "# cluster\r\n\r\nh1 slots=4 max_slots=8 # big\r\nme@h2:2\n[fe80::1]:2\n");
  add(plain, "h1:2 binding=user:0,1\nh2:3 user=me\nn[1-2] slots = 4\n");
  add(plain, "h1\nh1\nh2\n");
  add(0, "n1\nn1\nn2\n");
  add(1, "hostA 4 hostB 8 ");
  add(2, "n1 4 all.q@n1 UNDEFINED\nn1 2 fast.q@n1 0,0\n");
  add(3, "# none\n");
  add(6, "node[01-04],x");
  return seeds;
}

}  // namespace distrun::fuzz
