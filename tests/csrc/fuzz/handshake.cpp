// Strangers connecting to a rank that waits for another: none may be admitted or answered, except that replaying a
// valid Hello gets a challenge; and in the end the awaited rank is still admitted.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "core/tcp/meeting/tcp_meeting.hpp"
#include "fuzz/knock.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

constexpr std::array<std::uint64_t, 2> kToken{0x1234567890abcdef, 0xfedcba0987654321};
constexpr std::chrono::hours kForever{24};

/// Rank 0 of 2, which waits for rank 1.
class House {
 public:
  House() : listener_(options()), published_{listener_.published(), ""}, door_(listener_.endpoints().addresses.back()) {
    waiting_ = std::thread([this] {
      try {
        const std::array<std::uint32_t, 1> other{1};
        peers_ = TcpMeeting(std::move(listener_), options(), {kToken, 7, 0, 2}, published_, other, kForever)
                     .connect_control(other);
      } catch (const std::exception& error) {
        fault(std::string("the rank that waits gave up: ") + error.what());
      }
    });
  }

  static House*& only() {
    static House* house = new House;
    return house;
  }

  [[nodiscard]] const TcpAddress& door() const { return door_; }

  /// Rank 1 connects.
  void complete() {
    TcpListener listener(options());
    const std::array<std::uint32_t, 1> other{0};
    const auto peers =
        TcpMeeting(std::move(listener), options(), {kToken, 7, 1, 2}, published_, other, std::chrono::seconds(60))
            .connect_control(other);
    waiting_.join();
    require(peers_.size() == 1 && peers.size() == 1 && peers_[0].control, "not connected");
    const char told = 'x';
    char heard = 0;
    require(send(peers[0].control.get(), &told, 1, 0) == 1, "the connection is broken");
    for (int i = 0; i < 10'000 && recv(peers_[0].control.get(), &heard, 1, MSG_DONTWAIT) != 1; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    require(heard == told, "the connection leads to somebody else");
  }

 private:
  static TcpOptions options() { return {.interfaces = "lo", .flows = 2}; }

  TcpListener listener_;
  std::vector<std::string> published_;
  TcpAddress door_;
  std::vector<TcpPeer> peers_;
  std::thread waiting_;
};

Bytes hello(std::uint16_t flow) {
  Bytes bytes;
  append(bytes, proven(Hello{.flow = flow, .nonce = {1, 2}, .group = 7, .from = 1, .to = 0, .flows = 2}, kToken));
  return bytes;
}

std::vector<Bytes> handshake_seeds() { return {hello(0), hello(1), hello(kControlFlow)}; }

/// What rank 1 once sent, perhaps followed by more.
bool repeats_rank_1(std::span<const std::byte> input) {
  return std::ranges::any_of(handshake_seeds(), [&](const Bytes& right) {
    return input.size() >= right.size() && std::ranges::equal(input.first(right.size()), right);
  });
}

bool take_hello(std::span<const std::byte> input) {
  House& house = *House::only();
  const bool repeats = repeats_rank_1(input);
  const std::size_t told = answer_of(house.door(), input).size();
  require(told == 0 || (repeats && told == sizeof(Ack)), "a stranger was answered, or let in");
  return repeats;
}

void end_of_handshakes() {
  House::only()->complete();
  delete std::exchange(House::only(), nullptr);
}

}  // namespace

const Target kHandshake{"handshake", handshake_seeds, take_hello, end_of_handshakes};

}  // namespace syntony::fuzz
