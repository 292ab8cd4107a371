#include "launcher/report/lines/line_tags.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kWidestRanks = 40;

// "0-15". If the list is long, shows the first ranks and the number of all ranks.
std::string short_ranges(const std::vector<int>& ranks) {
  std::string out = ranges(ranks);
  if (out.size() <= kWidestRanks) return out;
  const std::size_t cut = out.rfind(',', kWidestRanks);
  return out.substr(0, cut) + ",... " + counted(ranks.size(), "rank");
}

}  // namespace

std::string LineTags::tag(const std::vector<int>& ranks, bool colour) const {
  if (style_ == TagStyle::kNone) return {};
  std::string name = short_ranges(ranks);
  const auto host = [this](int rank) { return hosts_[static_cast<std::size_t>(rank)]; };
  const bool one_host =
      std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return host(rank) == host(ranks.front()); });
  if (style_ == TagStyle::kHost && one_host) name += "@" + host(ranks.front());
  // Six colours that are readable on dark and light background. Neighbouring ranks differ. Lines of several ranks are
  // bold.
  constexpr int kColours[] = {36, 33, 35, 32, 34, 31};
  if (!colour) return "[" + name + "] ";
  return "\x1b[" + std::to_string(ranks.size() > 1 ? 1 : kColours[ranks.front() % 6]) + "m[" + name + "]\x1b[0m ";
}

std::string LineTags::stamp(Duration ago) const {
  if (!timestamp_) return {};
  const auto then = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::microseconds>(ago);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(then);
  tm local{};
  ::localtime_r(&seconds, &local);
  char text[64];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(then.time_since_epoch()).count() % 1000;
  char fraction[8];
  std::snprintf(fraction, sizeof fraction, ".%03d ", static_cast<int>(milliseconds));
  return std::string(text, size) + fraction;
}

}  // namespace distrun::launcher
