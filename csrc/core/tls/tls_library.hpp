// OpenSSL (1.1.1 or 3), loaded on first use. Its functions are declared here, because their binary interface is stable:
// so every build can encrypt, with or without OpenSSL's headers.
#pragma once

#include <cstddef>
#include <cstdint>

// OpenSSL's own names of its types.
struct bio_method_st;
struct bio_st;
struct evp_md_st;
struct ssl_ctx_st;
struct ssl_method_st;
struct ssl_st;

namespace syntony {

struct TlsLibrary {
  using ClientKey = unsigned (*)(ssl_st*, const char* hint, char* identity, unsigned identity_room, unsigned char* key,
                                 unsigned key_room);
  using ServerKey = unsigned (*)(ssl_st*, const char* identity, unsigned char* key, unsigned key_room);

  const ssl_method_st* (*method)() = nullptr;
  ssl_ctx_st* (*context_new)(const ssl_method_st*) = nullptr;
  long (*context_ctrl)(ssl_ctx_st*, int command, long number, void* pointer) = nullptr;
  std::uint64_t (*context_set_options)(ssl_ctx_st*, std::uint64_t) = nullptr;
  int (*context_set_ciphersuites)(ssl_ctx_st*, const char*) = nullptr;
  int (*context_set_num_tickets)(ssl_ctx_st*, std::size_t) = nullptr;
  void (*context_set_client_key)(ssl_ctx_st*, ClientKey) = nullptr;
  void (*context_set_server_key)(ssl_ctx_st*, ServerKey) = nullptr;
  ssl_st* (*session_new)(ssl_ctx_st*) = nullptr;
  void (*session_free)(ssl_st*) = nullptr;
  int (*set_ex_data)(ssl_st*, int index, void* data) = nullptr;
  void* (*get_ex_data)(const ssl_st*, int index) = nullptr;
  void (*set_bio)(ssl_st*, bio_st* reads, bio_st* writes) = nullptr;
  void (*set_connect_state)(ssl_st*) = nullptr;
  void (*set_accept_state)(ssl_st*) = nullptr;
  void (*set_read_ahead)(ssl_st*, int) = nullptr;
  void (*set_default_read_buffer_len)(ssl_st*, std::size_t) = nullptr;
  int (*do_handshake)(ssl_st*) = nullptr;
  int (*is_init_finished)(const ssl_st*) = nullptr;
  int (*read)(ssl_st*, void*, int) = nullptr;
  int (*write)(ssl_st*, const void*, int) = nullptr;
  int (*get_error)(const ssl_st*, int returned) = nullptr;
  int (*key_update)(ssl_st*, int type) = nullptr;

  bio_st* (*bio_new)(const bio_method_st*) = nullptr;
  bio_st* (*bio_new_socket)(int socket, int close) = nullptr;
  bio_method_st* (*bio_method_new)(int type, const char* name) = nullptr;
  int (*bio_method_set_write)(bio_method_st*, int (*)(bio_st*, const char*, int)) = nullptr;
  int (*bio_method_set_ctrl)(bio_method_st*, long (*)(bio_st*, int, long, void*)) = nullptr;
  void (*bio_set_data)(bio_st*, void*) = nullptr;
  void* (*bio_get_data)(bio_st*) = nullptr;
  void (*bio_set_init)(bio_st*, int) = nullptr;
  void (*clear_errors)() = nullptr;
  const evp_md_st* (*sha256)() = nullptr;
  unsigned char* (*hmac)(const evp_md_st*, const void* key, int key_bytes, const unsigned char* data,
                         std::size_t data_bytes, unsigned char* digest, unsigned* digest_bytes) = nullptr;

  /// What has no function of its own: numbers of OpenSSL's headers.
  static constexpr int kSetMinimumVersion = 123;            // SSL_CTRL_SET_MIN_PROTO_VERSION
  static constexpr int kMode = 33, kReleaseBuffers = 0x10;  // SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS
  static constexpr int kTls13 = 0x0304;                     // TLS1_3_VERSION
  static constexpr std::uint64_t kNoEndNeeded = 1 << 7;     // SSL_OP_IGNORE_UNEXPECTED_EOF
  static constexpr int kWantRead = 2;                       // SSL_ERROR_WANT_READ
  static constexpr int kSystemCall = 5, kEnded = 6;         // SSL_ERROR_SYSCALL, SSL_ERROR_ZERO_RETURN
  static constexpr int kFlush = 11;                         // BIO_CTRL_FLUSH
  static constexpr int kCustomType = 126 | 0x0400;  // beyond those that OpenSSL has given away; BIO_TYPE_SOURCE_SINK

  /// Loaded once. Throws Error(system) if it is missing or too old.
  [[nodiscard]] static const TlsLibrary& get();
};

}  // namespace syntony
