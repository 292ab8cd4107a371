#include "runtime/backend/hierarchical/layout.h"

#include <algorithm>
#include <map>

namespace distrun::backend::hierarchical {
namespace {

constexpr std::size_t kCacheLine = 64;

}  // namespace

std::vector<std::size_t> Layout::lane(std::size_t number) const {
  std::vector<std::size_t> members;
  for (const auto& on_host : hosts) members.push_back(on_host[number]);
  std::ranges::sort(members);
  return members;
}

Layout layout_of(const std::vector<std::size_t>& first, std::size_t self) {
  Layout layout;
  std::map<std::size_t, std::size_t> number;  // number of a host, by its first member
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto [host, fresh] = number.try_emplace(first[i], layout.hosts.size());
    if (fresh) layout.hosts.emplace_back();
    auto& members = layout.hosts[host->second];
    if (i == self) {
      layout.host = host->second;
      layout.local = members.size();
    }
    members.push_back(i);
  }
  const auto fewest = std::ranges::min_element(layout.hosts, {}, [](const auto& members) { return members.size(); });
  layout.lanes = fewest == layout.hosts.end() ? 0 : fewest->size();
  return layout;
}

std::vector<std::size_t> parts_of(const Layout& layout, std::size_t elements, std::size_t element_bytes) {
  const std::size_t unit = kCacheLine / element_bytes;
  const std::size_t each = (elements + layout.lanes * unit - 1) / (layout.lanes * unit) * unit;
  std::vector<std::size_t> parts(layout.here().size(), 0);
  for (std::size_t lane = 0; lane < layout.lanes; ++lane) {
    parts[lane] = std::min(each, elements - std::min(elements, lane * each));
  }
  return parts;
}

std::size_t part_bytes(std::size_t piece_bytes, std::size_t lanes) {
  return std::max(piece_bytes / (lanes * kCacheLine), std::size_t{1}) * kCacheLine;
}

std::size_t piece_elements(std::size_t piece_bytes, std::size_t element_bytes, std::size_t lanes) {
  return part_bytes(piece_bytes, lanes) * lanes / element_bytes;
}

}  // namespace distrun::backend::hierarchical
