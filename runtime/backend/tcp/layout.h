// An operation's memory as one row of elements, across all of its segments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/status.h"

namespace distrun::backend::tcp {

class Layout {
 public:
  // An allgather has one segment whose output is longer than its `count` input elements. Each side is then a row of its
  // own.
  Layout(std::span<const Segment> segments, std::size_t element_bytes) : segments_(segments), bytes_(element_bytes) {
    ends_.reserve(segments.size());
    for (const Segment& segment : segments) {
      count_ += segment.count;
      ends_.push_back(count_);
    }
  }

  [[nodiscard]] std::size_t count() const { return count_; }  // input elements
  [[nodiscard]] std::size_t element_bytes() const { return bytes_; }

  // Calls f(in, out, elements) for each contiguous piece of [begin, begin + count).
  template <class F>
  void for_each(std::size_t begin, std::size_t count, F f) const {
    if (segments_.size() == 1) {
      if (count > 0) f(at(segments_[0].in, begin), at(segments_[0].out, begin), count);
      return;
    }
    auto index = static_cast<std::size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
    while (count > 0) {
      DISTRUN_CHECK(index < segments_.size(), "a range beyond the operation's segments");
      const Segment& segment = segments_[index];
      const std::size_t offset = begin - (ends_[index] - segment.count);
      const std::size_t part = std::min(count, segment.count - offset);
      if (part > 0) f(at(segment.in, offset), at(segment.out, offset), part);
      begin += part;
      count -= part;
      ++index;
    }
  }

 private:
  template <class Byte>
  Byte* at(Byte* base, std::size_t element) const {
    return base == nullptr ? nullptr : base + element * bytes_;
  }

  std::span<const Segment> segments_;
  std::size_t bytes_;
  std::size_t count_ = 0;
  std::vector<std::size_t> ends_;  // ends_[i]: elements of segments 0 to i
};

}  // namespace distrun::backend::tcp
