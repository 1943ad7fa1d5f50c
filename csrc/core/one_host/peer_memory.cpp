#include "core/one_host/peer_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/process/host.hpp"
#include "core/process/unique_fd.hpp"
#include "core/shm/shm_segment.hpp"

namespace syntony {
namespace {

constexpr std::size_t kManyMappings = 8;  // of one peer's pieces

bool copy_from(pid_t process, void* to, std::uint64_t address, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec local{at, bytes};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t copied = ::process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) return false;
    at += copied;
    address += static_cast<std::uint64_t>(copied);
    bytes -= static_cast<std::size_t>(copied);
  }
  return true;
}

bool reads_allowed() {
  const char* const variable = std::getenv("SYNTONY_PEER_READS");
  return variable == nullptr || std::string_view(variable) != "0";
}

}  // namespace

PeerMemory::PeerMemory(std::vector<pid_t> processes)
    : processes_(std::move(processes)),
      allowed_(reads_allowed()),
      permission_(allowed_ ? std::span<const pid_t>(processes_) : std::span<const pid_t>()),
      number_(random_token()[0]) {}

PeerMemory::~PeerMemory() { unmap_all(); }

void PeerMemory::unmap_all() {
  for (const auto& [_, mapping] : mapped_) ::munmap(mapping.data, mapping.bytes);
  mapped_.clear();
}

void PeerMemory::trim() {
  if (mapped_.size() > kManyMappings * processes_.size()) unmap_all();
}

std::span<std::byte> PeerMemory::room(std::size_t bytes) {
  if (room_.size() < bytes + kCacheLine) room_.resize(bytes + kCacheLine);
  const std::size_t skipped = (kCacheLine - reinterpret_cast<std::uintptr_t>(room_.data()) % kCacheLine) % kCacheLine;
  return std::span(room_).subspan(skipped, bytes);
}

BufferAddress PeerMemory::address_of(const std::byte* data, std::size_t bytes) {
  BufferAddress buffer{.address = reinterpret_cast<std::uint64_t>(data), .bytes = bytes};
  if (const auto place = ShareableMemory::find(data, bytes)) {
    buffer.offset = place->offset;
    buffer.piece = place->piece;
    buffer.descriptor = place->descriptor;
  }
  return buffer;
}

bool PeerMemory::readable(std::span<const BufferAddress> buffers) {
  constexpr std::size_t kAtOnce = 512;  // of UIO_MAXIOV
  std::array<std::byte, kAtOnce> bytes;
  std::vector<iovec> ends;
  for (const BufferAddress& buffer : buffers) {
    if (buffer.bytes == 0 || buffer.piece != 0) continue;
    for (const std::uint64_t address : {buffer.address, buffer.address + buffer.bytes - 1}) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, looked at as peers do
      ends.push_back({reinterpret_cast<void*>(address), 1});
    }
  }
  for (std::size_t first = 0; first < ends.size(); first += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, ends.size() - first);
    const iovec local{bytes.data(), count};
    if (::process_vm_readv(::getpid(), &local, 1, &ends[first], count, 0) != static_cast<ssize_t>(count)) return false;
  }
  return true;
}

bool PeerMemory::convinced(std::uint32_t rank, const Proof& proof) const {
  std::uint64_t number = 0;
  return allowed_ && copy_from(processes_[rank], &number, proof.address, sizeof(number)) && number == proof.number;
}

bool PeerMemory::read(std::uint32_t rank, std::byte* to, std::uint64_t address, std::size_t bytes) const {
  if (copy_from(processes_[rank], to, address, bytes)) return true;
  if (errno != ESRCH) return false;
  throw Error(Error::Kind::dead, system_sentence("its memory cannot be read any more"), {static_cast<int>(rank)});
}

std::byte* PeerMemory::map(std::uint32_t rank, const BufferAddress& buffer) {
  if (buffer.piece == 0) return nullptr;
  const std::pair key{rank, buffer.piece};
  auto known = mapped_.find(key);
  if (known == mapped_.end()) {
    const std::string path = "/proc/" + std::to_string(processes_[rank]) + "/fd/" + std::to_string(buffer.descriptor);
    const UniqueFd memory(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat facts{};
    if (!memory || ::fstat(memory.get(), &facts) != 0) return nullptr;
    const auto bytes = static_cast<std::size_t>(facts.st_size);
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (data == MAP_FAILED) return nullptr;
    known = mapped_.emplace(key, Mapping{static_cast<std::byte*>(data), bytes}).first;
  }
  const Mapping& mapping = known->second;
  const bool inside = buffer.offset <= mapping.bytes && buffer.bytes <= mapping.bytes - buffer.offset;
  return inside ? mapping.data + buffer.offset : nullptr;
}

}  // namespace syntony
