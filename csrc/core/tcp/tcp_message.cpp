#include "core/tcp/tcp_message.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/legible.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

constexpr std::size_t kMostRanks = 4096;
constexpr std::size_t kLongestSentence = 16_KiB;

template <typename Value>
void append(std::vector<std::byte>& bytes, const Value* values, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<Value>);
  const std::size_t before = bytes.size();
  bytes.resize(before + count * sizeof(Value));
  if (count > 0) std::memcpy(bytes.data() + before, values, count * sizeof(Value));
}

/// Takes `count` values from the front of `bytes`; false if there are too few.
template <typename Value>
bool take(std::span<const std::byte>& bytes, Value* values, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<Value>);
  if (bytes.size() / sizeof(Value) < count) return false;
  if (count > 0) std::memcpy(values, bytes.data(), count * sizeof(Value));
  bytes = bytes.subspan(count * sizeof(Value));
  return true;
}

/// Its enumerations index tables of names, so they must be in range.
bool believable(const Descriptor& descriptor) {
  return descriptor.collective <= Collective::scatter && static_cast<std::size_t>(descriptor.dtype) < kDTypes.size() &&
         static_cast<std::size_t>(descriptor.op) < kReduceOps.size() && index_of(descriptor.priority) < kPriorities;
}

}  // namespace

std::vector<std::byte> encode(const ControlStatus& status) {
  std::vector<std::byte> bytes;
  append(bytes, &status.version, 1);
  append(bytes, status.completed.data(), status.completed.size());
  append(bytes, status.started.data(), status.started.size());
  return bytes;
}

std::optional<ControlStatus> decode_status(std::span<const std::byte> body) {
  ControlStatus status;
  if (!take(body, &status.version, 1) || !take(body, status.completed.data(), status.completed.size()) ||
      body.size() % sizeof(Descriptor) != 0)
    return std::nullopt;
  status.started.resize(body.size() / sizeof(Descriptor));
  if (!take(body, status.started.data(), status.started.size())) return std::nullopt;
  if (!std::ranges::all_of(status.started, believable)) return std::nullopt;
  return status;
}

std::vector<std::byte> encode(const Abort& abort) {
  const std::vector<std::int32_t> ranks(
      abort.ranks.begin(), abort.ranks.begin() + static_cast<std::ptrdiff_t>(std::min(abort.ranks.size(), kMostRanks)));
  const auto count = static_cast<std::uint32_t>(ranks.size());
  std::vector<std::byte> bytes;
  append(bytes, &abort.kind, 1);
  append(bytes, &count, 1);
  append(bytes, ranks.data(), ranks.size());
  append(bytes, abort.sentence.data(), std::min(abort.sentence.size(), kLongestSentence));
  return bytes;
}

std::optional<Abort> decode_abort(std::span<const std::byte> body) {
  Abort abort;
  std::uint8_t kind = 0;
  std::uint32_t count = 0;
  if (!take(body, &kind, 1) || kind > static_cast<std::uint8_t>(Error::Kind::system)) return std::nullopt;
  if (!take(body, &count, 1) || count > kMostRanks) return std::nullopt;
  std::vector<std::int32_t> ranks(count);
  if (!take(body, ranks.data(), ranks.size())) return std::nullopt;
  abort.kind = static_cast<Error::Kind>(kind);
  abort.ranks.assign(ranks.begin(), ranks.end());
  abort.sentence = legible({reinterpret_cast<const char*>(body.data()), body.size()});
  return abort;
}

}  // namespace syntony
