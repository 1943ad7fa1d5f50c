// One end of an encrypted connection: TLS 1.3 over a socket that its owner reads and writes without blocking.
//
//    rank 1 (dials)                               rank 0 (accepts)
//    ClientHello, proof of the key      ──►
//                                       ◄──       ServerHello, .., Finished          one exchange of Diffie-Hellman
//    Finished, [records]                ──►                                          numbers, thrown away afterwards
//    [records]                          ◄─►       [records of at most 16 KiB]
//
// There are no certificates: both ends know a key of this connection alone (tls_key), so a recording of another one is
// of no use, and whoever learns the key later cannot read what was recorded (RFC 8446, 2.2, psk_dhe_ke). A record that
// was changed, repeated, left out or moved ends the connection. The handshake is made by the first calls of send() and
// receive(), whichever come first; nobody waits for it.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/sizes.hpp"
#include "core/tls/tls_library.hpp"

namespace syntony {

using TlsKey = std::array<std::byte, 32>;

/// HMAC-SHA256 of what both ends have said, keyed by what both know. Throws Error(system) without OpenSSL.
[[nodiscard]] TlsKey tls_key(std::span<const std::byte> known, std::string_view said);

/// Not thread-safe; the socket must outlive it.
class TlsSession {
 public:
  enum class End : std::uint8_t { dials, accepts };
  /// Records after which a side changes its keys: AES-GCM allows 2^24.5 under one (RFC 8446, 5.5).
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 23U;

  /// Throws Error(system) without OpenSSL.
  TlsSession(int socket, End end, const TlsKey& key, std::uint64_t records_per_key = kRecordsPerKey);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// As sendmsg: bytes taken, from the first piece on. What is taken is encrypted, but see pending(). -1 with errno
  /// EAGAIN if the kernel takes no more, EINPROGRESS before the handshake is over, EPROTO if the connection is not
  /// what it should be, and the system's otherwise.
  [[nodiscard]] ssize_t send(std::span<const iovec> pieces);
  /// As readv. Less than there is room for: the socket has nothing more.
  [[nodiscard]] ssize_t receive(std::span<const iovec> pieces);
  /// Something was taken that the kernel does not have yet: send() must be called again, perhaps with nothing.
  [[nodiscard]] bool pending() const { return gone_ < records_out_.size(); }
  /// True once after the handshake: sending is worth another try.
  [[nodiscard]] bool take_opened() { return opened_ && !std::exchange(told_, true); }

 private:
  static constexpr std::size_t kRecord = 16_KiB;
  static constexpr std::size_t kRecordsAtOnce = 8;

  static unsigned give_key(ssl_st* session, const char* hint, char* identity, unsigned identity_room,
                           unsigned char* key, unsigned key_room);
  static unsigned find_key(ssl_st* session, const char* identity, unsigned char* key, unsigned key_room);
  static int collect(bio_st* bio, const char* data, int bytes);
  static long control(bio_st* bio, int command, long number, void* pointer);

  /// True if the handshake is over; otherwise errno says why not.
  [[nodiscard]] bool open();
  /// Sets errno for what a call has returned.
  void explain(int returned);
  /// False, with errno, if the connection is broken.
  [[nodiscard]] bool encrypt(std::span<const std::byte> record);
  /// False, with errno, if the kernel did not take all.
  [[nodiscard]] bool flush();

  const TlsLibrary& tls_;
  int socket_;
  TlsKey key_;
  std::uint64_t records_per_key_;
  std::uint64_t records_ = 0;  // under the current key
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> session_;
  std::vector<std::byte> records_out_;
  std::size_t gone_ = 0;  // bytes of them that the kernel has
  bool opened_ = false;
  bool told_ = false;
};

}  // namespace syntony
