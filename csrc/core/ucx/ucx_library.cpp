#include "core/ucx/ucx_library.hpp"

#include "core/process/loaded_library.hpp"

namespace syntony {
namespace {

UcxLibrary load() {
  const LoadedLibrary library("libucp.so.0", "UCX", "libucx0 on Debian, ucx on Fedora");
  UcxLibrary ucx;
  library.find("ucp_get_version", ucx.get_version);
  unsigned major = 0, minor = 0, release = 0;
  ucx.get_version(&major, &minor, &release);
  library.require_version({major, minor}, {UCP_API_MAJOR, UCP_API_MINOR});
  library.find("ucp_get_version_string", ucx.get_version_string);
  library.find("ucp_config_read", ucx.config_read);
  library.find("ucp_config_modify", ucx.config_modify);
  library.find("ucp_config_release", ucx.config_release);
  library.find("ucp_init_version", ucx.init_version);
  library.find("ucp_cleanup", ucx.cleanup);
  library.find("ucp_worker_create", ucx.worker_create);
  library.find("ucp_worker_destroy", ucx.worker_destroy);
  library.find("ucp_worker_query", ucx.worker_query);
  library.find("ucp_worker_get_address", ucx.worker_get_address);
  library.find("ucp_worker_release_address", ucx.worker_release_address);
  library.find("ucp_worker_get_efd", ucx.worker_get_efd);
  library.find("ucp_worker_arm", ucx.worker_arm);
  library.find("ucp_worker_progress", ucx.worker_progress);
  library.find("ucp_worker_set_am_recv_handler", ucx.worker_set_am_recv_handler);
  library.find("ucp_ep_create", ucx.ep_create);
  library.find("ucp_ep_close_nbx", ucx.ep_close_nbx);
  library.find("ucp_ep_flush_nbx", ucx.ep_flush_nbx);
  library.find("ucp_am_send_nbx", ucx.am_send_nbx);
  library.find("ucp_am_recv_data_nbx", ucx.am_recv_data_nbx);
  library.find("ucp_request_check_status", ucx.request_check_status);
  library.find("ucp_request_free", ucx.request_free);
  library.find("ucp_mem_map", ucx.mem_map);
  library.find("ucp_mem_unmap", ucx.mem_unmap);
  library.find("ucp_mem_query", ucx.mem_query);
  library.find("ucp_rkey_pack", ucx.rkey_pack);
  library.find("ucp_rkey_buffer_release", ucx.rkey_buffer_release);
  library.find("ucp_ep_rkey_unpack", ucx.ep_rkey_unpack);
  library.find("ucp_rkey_ptr", ucx.rkey_ptr);
  library.find("ucp_rkey_destroy", ucx.rkey_destroy);
  library.find("ucs_status_string", ucx.status_string);
  return ucx;
}

}  // namespace

const UcxLibrary& UcxLibrary::get() {
  static const UcxLibrary ucx = load();
  return ucx;
}

}  // namespace syntony
