// Encrypted connections: what arrives is what was sent, or nothing.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "core/tls/tls_session.hpp"
#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;

TlsKey key_named(std::string_view name) { return tls_key(std::as_bytes(std::span("what both know")), name); }

/// Two ends of one connection, with little room between them.
struct Ends {
  explicit Ends(std::uint64_t records_per_key = TlsSession::kRecordsPerKey, std::string_view other_key = "key") {
    std::array<int, 2> ends{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "sockets");
    constexpr int kRoom = 8192;
    for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof(kRoom));
    sockets = {UniqueFd(ends[0]), UniqueFd(ends[1])};
    dialed.emplace(ends[0], TlsSession::End::dials, key_named("key"), records_per_key);
    accepted.emplace(ends[1], TlsSession::End::accepts, key_named(other_key), records_per_key);
  }
  std::array<UniqueFd, 2> sockets;
  std::optional<TlsSession> dialed, accepted;
};

std::vector<std::byte> random_bytes(std::size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

/// One end of a random conversation: sends `mine` in pieces of random sizes, and reads into such.
void converse(TlsSession& session, std::vector<std::byte> mine, std::vector<std::byte>& theirs, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::size_t sent = 0, received = 0;
  const auto pieces = [&](std::vector<std::byte>& bytes, std::size_t from) {
    std::vector<iovec> result;
    for (std::size_t count = random() % 5; count > 0 && from < bytes.size(); --count) {
      const std::size_t most = random() % 3 == 0 ? 100'000 : 300;
      const std::size_t length = std::min(bytes.size() - from, random() % most);
      result.push_back({bytes.data() + from, length});
      from += length;
    }
    return result;
  };
  while (sent < mine.size() || session.pending() || received < theirs.size()) {
    const ssize_t out = session.send(pieces(mine, sent));
    require(out >= 0 || errno == EAGAIN || errno == EINPROGRESS, "sending fails");
    if (out > 0) sent += static_cast<std::size_t>(out);
    const std::vector<iovec> room = pieces(theirs, received);
    std::size_t most = 0;
    for (const iovec& each : room) most += each.iov_len;
    const ssize_t in = session.receive(room);
    require(in > 0 || (in == 0 && most == 0) || (in < 0 && errno == EAGAIN), "receiving fails");
    if (in > 0) received += static_cast<std::size_t>(in);
    if (out <= 0 && in <= 0) std::this_thread::yield();
  }
}

void encrypted(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const std::uint64_t records_per_key : {TlsSession::kRecordsPerKey, std::uint64_t{1}, std::uint64_t{7}}) {
    Ends pair(records_per_key);
    const std::vector<std::byte> there = random_bytes(1'000'000, random), back = random_bytes(700'000, random);
    std::vector<std::byte> came(there.size()), came_back(back.size());
    std::thread other([&, other_seed = random()] { converse(*pair.accepted, back, came, other_seed); });
    converse(*pair.dialed, there, came_back, random());
    other.join();
    require(came == there && came_back == back, "what arrives is not what was sent");
  }
}

/// Hands on what `from` has to say, with one bit changed. False if it has nothing.
bool hand_on(int from, int to, std::optional<std::size_t> changed = std::nullopt) {
  std::array<std::byte, 65536> bytes;
  const ssize_t n = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n <= 0) return false;
  if (changed) bytes[*changed % static_cast<std::size_t>(n)] ^= std::byte{1};
  return ::send(to, bytes.data(), static_cast<std::size_t>(n), 0) == n;
}

/// Two ends, and somebody between them.
struct Tapped {
  Tapped() {
    std::array<int, 2> left{}, right{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, left.data()) == 0, "sockets");
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, right.data()) == 0, "sockets");
    sockets = {UniqueFd(left[0]), UniqueFd(left[1]), UniqueFd(right[0]), UniqueFd(right[1])};
    dialed.emplace(left[0], TlsSession::End::dials, key_named("key"));
    accepted.emplace(right[1], TlsSession::End::accepts, key_named("key"));
    std::byte nothing{};
    const iovec room{&nothing, 1};
    for (int turn = 0; turn < 10; ++turn) {
      (void)dialed->receive({&room, 1});
      hand_on(sockets[1].get(), sockets[2].get());
      (void)accepted->receive({&room, 1});
      hand_on(sockets[2].get(), sockets[1].get());
    }
    require(dialed->take_opened() && accepted->take_opened(), "no handshake");
  }
  std::array<UniqueFd, 4> sockets;
  std::optional<TlsSession> dialed, accepted;
};

void changed_on_the_way(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 40; ++turn) {
    Tapped tapped;
    std::vector<std::byte> said = random_bytes(1 + random() % 3000, random), heard(said.size());
    const iovec piece{said.data(), said.size()}, room{heard.data(), heard.size()};
    require(tapped.dialed->send({&piece, 1}) == static_cast<ssize_t>(said.size()), "sending fails");
    // The five bytes before a record say how long it is: then the rest is waited for, and nothing comes out.
    require(hand_on(tapped.sockets[1].get(), tapped.sockets[2].get(), 5 + random() % said.size()), "nothing to change");
    require(tapped.accepted->receive({&room, 1}) == -1 && errno == EPROTO, "a changed record is believed");
    require(tapped.accepted->receive({&room, 1}) == -1 && errno != EAGAIN, "a connection goes on after that");
  }
}

void said_twice(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tapped tapped;
  std::vector<std::byte> said = random_bytes(100, random), heard(said.size());
  const iovec piece{said.data(), said.size()}, room{heard.data(), heard.size()};
  require(tapped.dialed->send({&piece, 1}) == 100, "sending fails");
  std::array<std::byte, 4096> record{};
  const ssize_t n = ::recv(tapped.sockets[1].get(), record.data(), record.size(), 0);
  require(n > 100, "no record");
  require(std::ranges::search(record, said).empty(), "what is said can be read on the way");
  for (int time = 0; time < 2; ++time) {
    require(::send(tapped.sockets[2].get(), record.data(), static_cast<std::size_t>(n), 0) == n, "handing on fails");
  }
  require(tapped.accepted->receive({&room, 1}) == 100 && heard == said, "the first is not believed");
  require(tapped.accepted->receive({&room, 1}) == -1 && errno == EPROTO, "a repetition is believed");
}

void another_key(std::uint64_t) {
  Ends pair(TlsSession::kRecordsPerKey, "another key");
  std::byte byte{};
  const iovec room{&byte, 1};
  bool refused = false;
  for (int turn = 0; turn < 10 && !refused; ++turn) {
    refused |= pair.dialed->send({&room, 1}) == -1 && errno == EPROTO;
    refused |= pair.accepted->receive({&room, 1}) == -1 && errno == EPROTO;
  }
  require(refused, "ends with unlike keys talk to each other");
}

constexpr std::array kEncryptionTests{Test{"encrypted", encrypted}, Test{"changed_on_the_way", changed_on_the_way},
                                      Test{"said_twice", said_twice}, Test{"another_key", another_key}};

}  // namespace

std::span<const Test> encryption_tests() { return kEncryptionTests; }

}  // namespace tests
