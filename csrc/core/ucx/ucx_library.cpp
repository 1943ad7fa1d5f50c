#include "core/ucx/ucx_library.hpp"

#include <dlfcn.h>

#include "core/error.hpp"

namespace syntony {
namespace {

constexpr const char* kName = "libucp.so.0";  // a process that has loaded one already keeps it

template <typename Function>
void find(void* library, const char* name, Function& function) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) {
    throw Error(Error::Kind::system, std::string(kName) + " has no " + name + ": it is not UCX " +
                                         std::to_string(UCP_API_MAJOR) + "." + std::to_string(UCP_API_MINOR) +
                                         " or newer");
  }
  function = reinterpret_cast<Function>(found);
}

UcxLibrary load() {
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Error(Error::Kind::system, "UCX cannot be loaded (" + std::string(why == nullptr ? kName : why) +
                                         "): install it (libucx0 on Debian, ucx on Fedora) or let LD_LIBRARY_PATH say "
                                         "where it is");
  }
  UcxLibrary ucx;
  find(library, "ucp_get_version", ucx.get_version);
  unsigned major = 0, minor = 0, release = 0;
  ucx.get_version(&major, &minor, &release);
  if (major != UCP_API_MAJOR || minor < UCP_API_MINOR) {
    throw Error(Error::Kind::system, "UCX " + std::to_string(major) + "." + std::to_string(minor) +
                                         " is here, and Syntony was built for " + std::to_string(UCP_API_MAJOR) + "." +
                                         std::to_string(UCP_API_MINOR) + " or newer: install that, or build it again");
  }
  find(library, "ucp_get_version_string", ucx.get_version_string);
  find(library, "ucp_config_read", ucx.config_read);
  find(library, "ucp_config_modify", ucx.config_modify);
  find(library, "ucp_config_release", ucx.config_release);
  find(library, "ucp_init_version", ucx.init_version);
  find(library, "ucp_cleanup", ucx.cleanup);
  find(library, "ucp_worker_create", ucx.worker_create);
  find(library, "ucp_worker_destroy", ucx.worker_destroy);
  find(library, "ucp_worker_query", ucx.worker_query);
  find(library, "ucp_worker_get_address", ucx.worker_get_address);
  find(library, "ucp_worker_release_address", ucx.worker_release_address);
  find(library, "ucp_worker_get_efd", ucx.worker_get_efd);
  find(library, "ucp_worker_arm", ucx.worker_arm);
  find(library, "ucp_worker_progress", ucx.worker_progress);
  find(library, "ucp_worker_set_am_recv_handler", ucx.worker_set_am_recv_handler);
  find(library, "ucp_ep_create", ucx.ep_create);
  find(library, "ucp_ep_close_nbx", ucx.ep_close_nbx);
  find(library, "ucp_ep_flush_nbx", ucx.ep_flush_nbx);
  find(library, "ucp_am_send_nbx", ucx.am_send_nbx);
  find(library, "ucp_am_recv_data_nbx", ucx.am_recv_data_nbx);
  find(library, "ucp_request_check_status", ucx.request_check_status);
  find(library, "ucp_request_free", ucx.request_free);
  find(library, "ucs_status_string", ucx.status_string);
  return ucx;
}

}  // namespace

const UcxLibrary& UcxLibrary::get() {
  static const UcxLibrary ucx = load();
  return ucx;
}

}  // namespace syntony
