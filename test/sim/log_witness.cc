#include "test/sim/log_witness.h"

#include <algorithm>
#include <cstring>

namespace distrun::sim {

using engine::Message;
using engine::TensorId;
namespace entry = engine::entry;

namespace {

constexpr std::size_t kIndexAt = 1 + 4 + 4;  // where a frame has its index: after format, capabilities and epoch

}  // namespace

void LogWitness::sent(int from, const std::vector<std::byte>& bytes) {
  const auto frame = engine::decode(bytes);
  if (!frame.ok()) return findings_.add("rank " + std::to_string(from) + " sends what cannot be decoded");
  for (const Message& one : frame->messages) {
    if (const auto* ready = std::get_if<engine::message::Ready>(&one)) {
      for (const TensorId id : ready->ids) check_said(from, id);
    } else if (const auto* append_message = std::get_if<engine::message::Append>(&one)) {
      if (frame->index != log_size_) {
        findings_.add("the leader sends entries from " + std::to_string(frame->index) + " on, after " +
                      std::to_string(log_size_));
      }
      for (const engine::Entry& next : append_message->entries) append(next);
      ends_[frame->index] = log_size_;
    }
  }
}

void LogWitness::received(int to, const std::vector<std::byte>& bytes) {
  if (to == 0) return;
  if (!exact()) {
    std::uint64_t index = 0;
    if (bytes.size() >= kIndexAt + sizeof index) std::memcpy(&index, bytes.data() + kIndexAt, sizeof index);
    if (const auto found = ends_.find(index); found != ends_.end()) reader(to).read = found->second;
    return;
  }
  const auto frame = engine::decode(bytes);
  if (!frame.ok()) return;
  for (const Message& one : frame->messages) {
    const auto* append_message = std::get_if<engine::message::Append>(&one);
    if (append_message != nullptr) reader(to).read = frame->index + append_message->entries.size();
  }
}

void LogWitness::append(const engine::Entry& next) {
  if (shut_down_) findings_.add("the log goes on after its end");
  if (const auto* run = std::get_if<entry::Run>(&next)) {
    follow(*run);
  } else if (const auto* evict = std::get_if<entry::Evict>(&next)) {
    for (const TensorId id : evict->ids) erase(id);
  } else if (const auto* make = std::get_if<entry::MakeSet>(&next)) {
    if (!sets_.insert(make->set).second) findings_.add("process set " + std::to_string(make->set) + " is made twice");
  } else if (const auto* remove = std::get_if<entry::RemoveSet>(&next)) {
    std::vector<TensorId> gone;
    for (const auto& [key, id] : alive_) {
      if (key.first == remove->set) gone.push_back(id);
    }
    for (const TensorId id : gone) erase(id);
  } else if (std::holds_alternative<entry::Shutdown>(next)) {
    shut_down_ = true;
  }
  ++log_size_;
}

void LogWitness::follow(const entry::Run& run) {
  for (const engine::TensorRef& ref : run.tensors) {
    if (ref.name.empty()) {
      const auto found = ids_.find(ref.id);
      if (found == ids_.end() || found->second.erased != kNever || found->second.set != run.set) {
        findings_.add("entry " + std::to_string(log_size_) + " runs id " + std::to_string(ref.id) +
                      ", which no cache knows there");
      }
    } else if (ref.id != engine::kNoId) {
      const std::pair<int, std::string> key{run.set, ref.name};
      if (const auto old = alive_.find(key); old != alive_.end()) erase(TensorId{old->second});
      if (ids_.contains(ref.id)) findings_.add("id " + std::to_string(ref.id) + " is given twice");
      ids_[ref.id] = {.set = run.set, .name = ref.name, .defined = log_size_};
      alive_[key] = ref.id;
    }
  }
}

void LogWitness::erase(TensorId id) {
  const auto found = ids_.find(id);
  if (found == ids_.end() || found->second.erased != kNever) {
    return findings_.add("id " + std::to_string(id) + " is evicted, and no cache knows it");
  }
  found->second.erased = log_size_;
  const std::pair<int, std::string> key{found->second.set, found->second.name};
  alive_.erase(key);
  stale_[key] = id;
}

// A cache knows an id after p entries were read if defined < p <= erased.
void LogWitness::check_said(int rank, TensorId id) {
  const auto found = ids_.find(id);
  const Reader& self = reader(rank);
  const bool known = found != ids_.end() &&
                     std::max(self.before, found->second.defined + 1) <= std::min(self.read, found->second.erased);
  if (known) return;
  findings_.add("rank " + std::to_string(rank) + " says id " + std::to_string(id) +
                ", which its cache cannot know after " + std::to_string(self.read) + " entries");
}

TensorId LogWitness::stale_id(int rank, int set, const std::string& name) {
  const auto found = stale_.find({set, name});
  if (found == stale_.end() || ids_[found->second].erased >= reader(rank).before) return engine::kNoId;
  return found->second;
}

void LogWitness::ended_well(int rank) {
  if (rank == 0 || reader(rank).read == log_size_) return;
  findings_.add("rank " + std::to_string(rank) + " has read " + std::to_string(reader(rank).read) + " entries of " +
                std::to_string(log_size_));
}

void LogWitness::all_ended_well() {
  if (readers_.size() > 1 && !shut_down_) findings_.add("all ranks have left, and the log has no end");
  if (alive_.size() > capacity_) findings_.add("the caches hold " + std::to_string(alive_.size()) + " tensors");
}

}  // namespace distrun::sim
