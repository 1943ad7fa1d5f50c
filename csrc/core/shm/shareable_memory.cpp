#include "core/shm/shareable_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "core/error.hpp"
#include "core/shm/memory_file.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

constexpr std::size_t kHugePage = 2_MiB;

[[noreturn]] void refuse(std::size_t bytes) {
  throw Error(Error::Kind::system,
              "cannot allocate " + std::to_string(bytes) + " bytes that can be shared: " + std::strerror(errno));
}

struct Table {
  std::mutex mutex;
  std::map<const std::byte*, const ShareableMemory*> pieces;  // by first byte
};

Table& table() {
  static auto* const pieces = new Table;  // never destroyed: arrays may outlive static objects
  return *pieces;
}

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

}  // namespace

std::shared_ptr<ShareableMemory> ShareableMemory::allocate(std::size_t bytes) {
  const std::shared_ptr<ShareableMemory> piece(new ShareableMemory(bytes));
  const std::scoped_lock lock(table().mutex);
  table().pieces[piece->data_] = piece.get();
  return piece;
}

ShareableMemory::ShareableMemory(std::size_t bytes) : number_(next_number()) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const bool large = bytes >= kHugePage;
  if (bytes > SIZE_MAX / 2) {
    errno = ENOMEM;
    refuse(bytes);
  }
  bytes_ = bytes == 0 ? page : (bytes + page - 1) / page * page;
  memory_ = memory_file("syntony-buffer");
  if (!memory_ || ::ftruncate(memory_.get(), static_cast<off_t>(bytes_)) != 0) refuse(bytes);
  // Huge pages need addresses aligned to their size: reserve more, then map over the aligned part.
  mapped_bytes_ = bytes_ + (large ? kHugePage : 0);
  void* const room = ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) refuse(bytes);
  mapped_ = static_cast<std::byte*>(room);
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(mapped_) % kHugePage;
  data_ = mapped_ + (large && beyond != 0 ? kHugePage - beyond : 0);
  if (::mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_.get(), 0) == MAP_FAILED) {
    const int fault = errno;
    ::munmap(mapped_, mapped_bytes_);
    errno = fault;
    refuse(bytes);
  }
  if (large) provide_huge_pages();
}

// Of a memfd the kernel provides small pages, unless an administrator has changed that, but merges them into huge ones
// on request, if at least one of them has been touched: reading 64 MiB takes 2.1 instead of 4.2 ms, and providing them
// 10 instead of 80.
void ShareableMemory::provide_huge_pages() {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1; where it is refused, pages come as they are touched
  ::madvise(data_, bytes_, MADV_HUGEPAGE);  // a hint: the kernel may ignore it
  const std::size_t whole = bytes_ / kHugePage * kHugePage;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (whole / page > static_cast<std::size_t>(::sysconf(_SC_AVPHYS_PAGES)) / 2) return;  // perhaps not all will be used
  for (std::size_t at = 0; at < whole; at += kHugePage) data_[at] = std::byte{0};
  ::madvise(data_, whole, kCollapse);
}

ShareableMemory::~ShareableMemory() {
  {
    const std::scoped_lock lock(table().mutex);
    table().pieces.erase(data_);
  }
  ::munmap(mapped_, mapped_bytes_);
}

bool ShareableMemory::withdraw(std::byte* address, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const begin = address - reinterpret_cast<std::uintptr_t>(address) % page;
  const std::size_t length = (static_cast<std::size_t>(address - begin) + bytes + page - 1) / page * page;
  void* const others = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (others == MAP_FAILED) return false;
  std::memcpy(others, begin, length);
  if (::mremap(others, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, begin) == MAP_FAILED) {
    ::munmap(others, length);
    return false;
  }
  const std::scoped_lock lock(table().mutex);
  std::erase_if(table().pieces, [&](const auto& entry) {
    return entry.first <= address && address < entry.first + entry.second->bytes_;
  });
  return true;
}

std::optional<ShareableMemory::Place> ShareableMemory::find(const std::byte* address, std::size_t bytes) {
  const std::scoped_lock lock(table().mutex);
  auto after = table().pieces.upper_bound(address);
  if (after == table().pieces.begin()) return std::nullopt;
  const ShareableMemory& piece = *(--after)->second;
  const auto offset = static_cast<std::size_t>(address - piece.data_);
  if (offset > piece.bytes_ || bytes > piece.bytes_ - offset) return std::nullopt;
  return Place{piece.memory_.get(), offset, piece.number_};
}

}  // namespace syntony
