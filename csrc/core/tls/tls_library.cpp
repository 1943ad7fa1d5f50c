#include "core/tls/tls_library.hpp"

#include <optional>

#include "core/error.hpp"
#include "core/process/loaded_library.hpp"

namespace syntony {
namespace {

/// Version 3, or else 1.1.1: the two that are there where Syntony runs.
LoadedLibrary either(const char* newer, const char* older) {
  constexpr const char* kPackages = "libssl3 or libssl1.1 on Debian, openssl-libs on Fedora";
  try {
    return {newer, "OpenSSL", kPackages};
  } catch (const Error&) {
    return {older, "OpenSSL", kPackages};
  }
}

TlsLibrary load() {
  const LoadedLibrary crypto = either("libcrypto.so.3", "libcrypto.so.1.1");
  const LoadedLibrary ssl = either("libssl.so.3", "libssl.so.1.1");
  TlsLibrary tls;
  ssl.find("TLS_method", tls.method);
  ssl.find("SSL_CTX_new", tls.context_new);
  ssl.find("SSL_CTX_ctrl", tls.context_ctrl);
  ssl.find("SSL_CTX_set_options", tls.context_set_options);
  ssl.find("SSL_CTX_set_ciphersuites", tls.context_set_ciphersuites);
  ssl.find("SSL_CTX_set_num_tickets", tls.context_set_num_tickets);
  ssl.find("SSL_CTX_set_psk_client_callback", tls.context_set_client_key);
  ssl.find("SSL_CTX_set_psk_server_callback", tls.context_set_server_key);
  ssl.find("SSL_new", tls.session_new);
  ssl.find("SSL_free", tls.session_free);
  ssl.find("SSL_set_ex_data", tls.set_ex_data);
  ssl.find("SSL_get_ex_data", tls.get_ex_data);
  ssl.find("SSL_set_bio", tls.set_bio);
  ssl.find("SSL_set_connect_state", tls.set_connect_state);
  ssl.find("SSL_set_accept_state", tls.set_accept_state);
  ssl.find("SSL_set_read_ahead", tls.set_read_ahead);
  ssl.find("SSL_set_default_read_buffer_len", tls.set_default_read_buffer_len);
  ssl.find("SSL_do_handshake", tls.do_handshake);
  ssl.find("SSL_is_init_finished", tls.is_init_finished);
  ssl.find("SSL_read", tls.read);
  ssl.find("SSL_write", tls.write);
  ssl.find("SSL_get_error", tls.get_error);
  ssl.find("SSL_key_update", tls.key_update);
  crypto.find("BIO_new", tls.bio_new);
  crypto.find("BIO_new_socket", tls.bio_new_socket);
  crypto.find("BIO_meth_new", tls.bio_method_new);
  crypto.find("BIO_meth_set_write", tls.bio_method_set_write);
  crypto.find("BIO_meth_set_ctrl", tls.bio_method_set_ctrl);
  crypto.find("BIO_set_data", tls.bio_set_data);
  crypto.find("BIO_get_data", tls.bio_get_data);
  crypto.find("BIO_set_init", tls.bio_set_init);
  crypto.find("ERR_clear_error", tls.clear_errors);
  crypto.find("EVP_sha256", tls.sha256);
  crypto.find("HMAC", tls.hmac);
  return tls;
}

}  // namespace

const TlsLibrary& TlsLibrary::get() {
  static const TlsLibrary tls = load();
  return tls;
}

}  // namespace syntony
