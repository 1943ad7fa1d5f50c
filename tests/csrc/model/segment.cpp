// Replaces shm_segment.cpp and doorbell.cpp by memory of this process and the machine's bells.
#include <array>
#include <cstddef>
#include <string>

#include "core/shm/doorbell.hpp"
#include "core/shm/shm_segment.hpp"
#include "model/machine.hpp"

namespace syntony {
namespace {

constexpr std::size_t kRanks = 3;
constexpr std::size_t kStreamBytes = 1024;

// Zeroed, like a fresh memfd. The machine keeps what is stored in atomics, and resets plain data to zeros.
alignas(4096) std::array<std::byte, sizeof(AbortRecord)> abort_memory;
alignas(4096) std::array<std::byte, kRanks * sizeof(BoardLine)> boards;
alignas(4096) std::array<std::byte, kRanks * kPostSlots * sizeof(Post)> posts;
alignas(4096) std::array<std::byte, kRanks * kPriorities * 2 * sizeof(StageBuffer)> stages;
alignas(4096) std::array<std::byte, kRanks * kRanks * kStreamBytes> streams;

template <typename T>
T& at(auto& memory, std::size_t index) {
  return reinterpret_cast<T*>(memory.data())[index];
}

}  // namespace

ShmSegment::ShmSegment(std::span<const ShmMember> members, std::uint32_t /*rank*/, UniqueFd /*entrance*/,
                       const Doorbell& doorbell, const StreamShape& shape,
                       std::chrono::steady_clock::time_point /*deadline*/)
    : shape_(shape), local_(shape.ranks, 0), doorbell_(doorbell) {
  for (const ShmMember& member : members) {
    local_[member.rank] = static_cast<std::uint32_t>(ranks_.size());
    ranks_.push_back(member.rank);
    doorbells_.push_back(member.doorbell);
  }
}
ShmSegment::~ShmSegment() = default;

AbortRecord& ShmSegment::abort_record() const { return at<AbortRecord>(abort_memory, 0); }
BoardLine& ShmSegment::board(std::uint32_t rank) const { return at<BoardLine>(boards, rank); }
Post& ShmSegment::post(std::uint32_t rank, std::size_t slot) const { return at<Post>(posts, rank * kPostSlots + slot); }
StageBuffer& ShmSegment::stage_buffer(std::uint32_t rank, Priority priority, std::uint64_t parity) const {
  return at<StageBuffer>(stages, (rank * kPriorities + index_of(priority)) * 2 + parity);
}
std::byte* ShmSegment::stream(std::uint32_t destination, std::uint32_t source, std::uint32_t /*channel*/,
                              std::uint32_t /*window*/) const {
  return streams.data() + (destination * kRanks + source) * kStreamBytes;
}

Doorbell::Doorbell() = default;
void Doorbell::ring(const std::string& address) const { model::ring(static_cast<std::uint32_t>(std::stoul(address))); }

}  // namespace syntony
