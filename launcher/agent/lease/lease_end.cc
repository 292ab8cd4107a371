#include "launcher/agent/lease/lease_end.h"

#include <sys/eventfd.h>
#include <sys/mman.h>

#include <new>

namespace distrun::launcher {

LeaseEnd LeaseEnd::shared() {
  LeaseEnd out;
  out.begun_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  void* const memory = ::mmap(nullptr, sizeof(Cell), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) out.end_.reset(new (memory) Cell(kNone));
  return out;
}

void LeaseEnd::set(std::optional<BootTime> end) {
  if (!end_) return;
  const bool begins = end_->exchange(end ? end->count() : kNone) == kNone && end;
  if (begins) ::eventfd_write(begun_.get(), 1);
}

std::optional<BootTime> LeaseEnd::get() const {
  const std::int64_t end = end_ ? end_->load() : kNone;
  return end == kNone ? std::nullopt : std::optional(BootTime(end));
}

void LeaseEnd::take_begun() const {
  eventfd_t value = 0;
  ::eventfd_read(begun_.get(), &value);
}

void LeaseEnd::Unmap::operator()(Cell* cell) const { ::munmap(cell, sizeof(Cell)); }

}  // namespace distrun::launcher
