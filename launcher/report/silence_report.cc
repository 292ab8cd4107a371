#include "launcher/report/silence_report.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kFold = 3;
constexpr std::size_t kMostListed = 16;

// "node07.cluster" becomes "node", the digits "07", and ".cluster". An address has its number at the end.
struct NumberedName {
  std::string before;
  std::string digits;
  std::string after;
  unsigned long number = 0;
};

bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::optional<NumberedName> numbered(const std::string& name) {
  const std::string_view label = std::string_view(name).substr(0, name.find('.'));
  const std::size_t scope = std::all_of(label.begin(), label.end(), digit) ? name.size() : label.size();
  std::size_t end = scope;
  while (end > 0 && !digit(name[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && digit(name[begin - 1])) --begin;
  NumberedName out{
      .before = name.substr(0, begin), .digits = name.substr(begin, end - begin), .after = name.substr(end)};
  const char* const last = out.digits.data() + out.digits.size();
  if (begin == end || std::from_chars(out.digits.data(), last, out.number).ec != std::errc()) return std::nullopt;
  return out;
}

bool follows(const std::string& name, const std::string& previous) {
  const auto a = numbered(previous);
  const auto b = numbered(name);
  if (!a || !b || a->before != b->before || a->after != b->after || b->number != a->number + 1) return false;
  const bool padded = a->digits.front() == '0' || b->digits.front() == '0';
  return !padded || a->digits.size() == b->digits.size();
}

std::string hosts_are(const std::vector<std::string>& hosts, const std::string& of_one, const std::string& of_many) {
  return (hosts.size() == 1 ? "host " : "hosts ") + host_list(hosts) + (hosts.size() == 1 ? of_one : of_many);
}

std::string seconds_of(Duration time) { return seconds_text(std::chrono::duration<double>(time).count()) + " s"; }

std::string whole_seconds_of(Duration time) {
  return seconds_text(std::round(std::chrono::duration<double>(time).count())) + " s";
}

std::string share(std::size_t hosts, std::size_t all) {
  return " (" + std::to_string(hosts) + " of " + std::to_string(all) + ")";
}

}  // namespace

std::string host_list(const std::vector<std::string>& hosts) {
  std::vector<std::string> parts;
  for (std::size_t first = 0; first < hosts.size();) {
    std::size_t end = first + 1;
    while (end < hosts.size() && follows(hosts[end], hosts[end - 1])) ++end;
    const bool folded = end - first >= kFold;
    if (folded) {
      parts.push_back(hosts[first] + " to " + hosts[end - 1]);
    } else {
      parts.insert(parts.end(), hosts.begin() + static_cast<std::ptrdiff_t>(first),
                   hosts.begin() + static_cast<std::ptrdiff_t>(end));
    }
    first = end;
  }
  if (parts.size() > kMostListed) {
    const std::size_t others = parts.size() - kMostListed;
    parts.resize(kMostListed);
    return join(parts, ", ") + " and " + std::to_string(others) + " more";
  }
  if (parts.size() < 2) return join(parts, "");
  const std::string last = parts.back();
  parts.pop_back();
  return join(parts, ", ") + " and " + last;
}

std::string silent_report(const std::vector<std::string>& hosts, std::size_t all, Duration silence, Duration limit) {
  const std::string time = " been silent for " + seconds_of(silence) + "; ";
  const std::string end = " given up after " + seconds_of(limit) + " (--host-timeout)";
  return hosts_are(hosts, " has" + time + "it is", share(hosts.size(), all) + " have" + time + "they are") + end;
}

std::string back_report(const std::vector<std::string>& hosts, Duration silent_for) {
  return hosts_are(hosts, " is", " are") + " back after " + whole_seconds_of(silent_for);
}

std::string lost_report(const std::vector<std::string>& hosts, std::size_t all, const std::string& why) {
  return hosts_are(hosts, " is lost", " are silent" + share(hosts.size(), all)) + ": " + why;
}

std::string silence_text(Duration silence) { return "nothing has come from there for " + whole_seconds_of(silence); }

OwnNetwork judge_own_network(std::size_t silent, std::size_t others, bool carrier) {
  if (!carrier) return OwnNetwork::kNoCarrier;
  return others > 1 && silent == others ? OwnNetwork::kAllSilent : OwnNetwork::kWorks;
}

std::string own_network_report(OwnNetwork how, Duration silence) {
  return "this machine's own network is gone: " +
         (how == OwnNetwork::kNoCarrier ? std::string("the interface that the job uses has no carrier")
                                        : "nothing has come from any other host for " + whole_seconds_of(silence));
}

}  // namespace distrun::launcher
