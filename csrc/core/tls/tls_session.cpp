#include "core/tls/tls_session.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace syntony {
namespace {

/// Both have SHA-256, which keys without a hash of their own go with. The first is what processors compute themselves.
constexpr const char* kSuites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kIdentity = "syntony";
constexpr std::size_t kReadAhead = 64_KiB;

[[noreturn]] void refuse(const char* what) {
  throw Error(Error::Kind::system, std::string("OpenSSL refuses ") + what + ": is its configuration made for it?");
}

}  // namespace

TlsKey tls_key(std::span<const std::byte> known, std::string_view said) {
  const TlsLibrary& tls = TlsLibrary::get();
  TlsKey key{};
  unsigned bytes = 0;
  if (tls.hmac(tls.sha256(), known.data(), static_cast<int>(known.size()),
               reinterpret_cast<const unsigned char*>(said.data()), said.size(),
               reinterpret_cast<unsigned char*>(key.data()), &bytes) == nullptr ||
      bytes != key.size()) {
    refuse("HMAC-SHA256");
  }
  return key;
}

TlsSession::TlsSession(int socket, End end, const TlsKey& key, std::uint64_t records_per_key)
    : tls_(TlsLibrary::get()),
      socket_(socket),
      key_(key),
      records_per_key_(records_per_key),
      session_(nullptr, tls_.session_free) {
  // For the whole process, and never freed: what sessions have in common.
  static ssl_ctx_st* const context = [](const TlsLibrary& tls) {
    ssl_ctx_st* const made = tls.context_new(tls.method());
    if (made == nullptr || tls.context_ctrl(made, TlsLibrary::kSetMinimumVersion, TlsLibrary::kTls13, nullptr) != 1 ||
        tls.context_set_ciphersuites(made, kSuites) != 1 || tls.context_set_num_tickets(made, 0) != 1) {
      refuse("TLS 1.3");
    }
    tls.context_ctrl(made, TlsLibrary::kMode, TlsLibrary::kReleaseBuffers, nullptr);  // of connections that are idle
    tls.context_set_options(made, TlsLibrary::kNoEndNeeded);
    tls.context_set_client_key(made, &give_key);
    tls.context_set_server_key(made, &find_key);
    return made;
  }(tls_);
  static bio_method_st* const writing = [](const TlsLibrary& tls) {
    bio_method_st* const made = tls.bio_method_new(TlsLibrary::kCustomType, "syntony socket");
    if (made == nullptr || tls.bio_method_set_write(made, &collect) != 1 ||
        tls.bio_method_set_ctrl(made, &control) != 1) {
      refuse("a way to write");
    }
    return made;
  }(tls_);
  session_.reset(tls_.session_new(context));
  bio_st* const reads = tls_.bio_new_socket(socket, 0);
  bio_st* const writes = tls_.bio_new(writing);
  if (session_ == nullptr || reads == nullptr || writes == nullptr) refuse("a session");
  tls_.bio_set_data(writes, this);
  tls_.bio_set_init(writes, 1);
  tls_.set_bio(session_.get(), reads, writes);
  tls_.set_ex_data(session_.get(), 0, this);
  tls_.set_default_read_buffer_len(session_.get(), kReadAhead);
  tls_.set_read_ahead(session_.get(), 1);
  end == End::dials ? tls_.set_connect_state(session_.get()) : tls_.set_accept_state(session_.get());
}

TlsSession::~TlsSession() = default;

unsigned TlsSession::give_key(ssl_st* session, const char* /*hint*/, char* identity, unsigned identity_room,
                              unsigned char* key, unsigned key_room) {
  const std::string_view name(kIdentity);
  if (identity_room <= name.size()) return 0;
  std::ranges::copy(name, identity);
  identity[name.size()] = '\0';
  return find_key(session, kIdentity, key, key_room);
}

unsigned TlsSession::find_key(ssl_st* session, const char* identity, unsigned char* key, unsigned key_room) {
  const auto& self = *static_cast<const TlsSession*>(TlsLibrary::get().get_ex_data(session, 0));
  if (std::string_view(identity) != kIdentity || key_room < self.key_.size()) return 0;
  std::memcpy(key, self.key_.data(), self.key_.size());
  return static_cast<unsigned>(self.key_.size());
}

/// OpenSSL writes record by record; what it writes goes to the kernel together.
int TlsSession::collect(bio_st* bio, const char* data, int bytes) {
  auto& self = *static_cast<TlsSession*>(TlsLibrary::get().bio_get_data(bio));
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  self.records_out_.insert(self.records_out_.end(), begin, begin + bytes);
  return bytes;
}

long TlsSession::control(bio_st* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == TlsLibrary::kFlush ? 1 : 0;
}

void TlsSession::explain(int returned) {
  const int system = errno;
  switch (tls_.get_error(session_.get(), returned)) {
    case TlsLibrary::kWantRead:
      errno = opened_ ? EAGAIN : EINPROGRESS;
      return;
    case TlsLibrary::kSystemCall:
      errno = system != 0 ? system : ECONNRESET;
      return;
    default:
      errno = EPROTO;
  }
}

bool TlsSession::open() {
  if (opened_) return true;
  errno = 0;
  tls_.clear_errors();
  const int returned = tls_.do_handshake(session_.get());
  if (returned == 1) return opened_ = true;
  explain(returned);
  const int why = errno;
  if (!flush() && errno != EAGAIN) return false;
  errno = why;
  return false;
}

bool TlsSession::flush() {
  while (pending()) {
    const ssize_t n =
        ::send(socket_, records_out_.data() + gone_, records_out_.size() - gone_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    gone_ += static_cast<std::size_t>(n);
  }
  records_out_.clear();
  gone_ = 0;
  return true;
}

bool TlsSession::encrypt(std::span<const std::byte> record) {
  errno = 0;
  tls_.clear_errors();
  const int returned = tls_.write(session_.get(), record.data(), static_cast<int>(record.size()));
  if (returned <= 0) return explain(returned), false;
  if (++records_ < records_per_key_) return true;
  constexpr int kOfThisSide = 0;  // SSL_KEY_UPDATE_NOT_REQUESTED: the other one counts for itself
  if (tls_.key_update(session_.get(), kOfThisSide) != 1) return errno = EPROTO, false;
  records_ = 0;
  return true;
}

ssize_t TlsSession::send(std::span<const iovec> pieces) {
  if (!open() || !flush()) return -1;
  std::array<std::byte, kRecord> plain;  // not initialized
  ssize_t taken = 0;
  std::size_t into = 0;  // of the first piece
  for (std::size_t turn = 0; turn < kRecordsAtOnce; ++turn) {
    std::size_t bytes = 0;
    while (!pieces.empty() && bytes < kRecord) {
      const iovec& piece = pieces.front();
      const std::size_t count = std::min(piece.iov_len - into, kRecord - bytes);
      std::memcpy(plain.data() + bytes, static_cast<const std::byte*>(piece.iov_base) + into, count);
      bytes += count;
      into += count;
      if (into == piece.iov_len) {
        pieces = pieces.subspan(1);
        into = 0;
      }
    }
    if (bytes == 0) break;
    if (!encrypt(std::span(plain).first(bytes))) return -1;
    taken += static_cast<ssize_t>(bytes);
  }
  if (!flush() && errno != EAGAIN) return -1;
  return taken;
}

ssize_t TlsSession::receive(std::span<const iovec> pieces) {
  if (!open()) {
    if (errno == EINPROGRESS) errno = EAGAIN;
    return -1;
  }
  ssize_t total = 0;
  for (const iovec& piece : pieces) {
    for (std::size_t filled = 0; filled < piece.iov_len;) {
      const std::size_t count = std::min<std::size_t>(piece.iov_len - filled, 1U << 30U);
      errno = 0;
      tls_.clear_errors();
      const int n =
          tls_.read(session_.get(), static_cast<std::byte*>(piece.iov_base) + filled, static_cast<int>(count));
      if (n > 0) {
        filled += static_cast<std::size_t>(n);
        total += n;
        continue;
      }
      if (tls_.get_error(session_.get(), n) == TlsLibrary::kEnded) return total;
      explain(n);
      const int why = errno;
      (void)flush();  // an alert, or what answers a change of keys
      errno = why;
      return why == EAGAIN && total > 0 ? total : -1;
    }
  }
  return total;
}

}  // namespace syntony
