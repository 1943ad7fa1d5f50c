#include "core/ucx/ucx_worker.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "core/error.hpp"
#include "core/frames/message_wire.hpp"
#include "core/process/host.hpp"
#include "core/ucx/ucx_transport.hpp"

namespace syntony {

std::shared_ptr<Port> open_ucx_port() { return std::make_shared<UcxWorker>(); }

UcxWorker::UcxWorker(const UcxLibrary& ucx) : ucx_(ucx) {
  ucp_config_t* config = nullptr;
  require(ucx_.config_read(nullptr, nullptr, &config), "read its configuration");
  suit_without_rdma(*config);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "syntony";
  const ucs_status_t status = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucx_.config_release(config);
  require(status, "begin");
  try {
    open_worker();
  } catch (...) {
    close();
    throw;
  }
}

// A rendezvous takes two more messages and their latency. Over sockets its payload is copied out of one of UCX's
// buffers anyway, and over shared memory it cannot arrive where it is expected: it is better to send a slot eagerly,
// over sockets as one message, in one system call. User settings are kept.
void UcxWorker::suit_without_rdma(ucp_config_t& config) const {
  if (has_rdma()) return;
  const char* const chosen = std::getenv("UCX_TLS");
  const std::string_view transports = chosen == nullptr ? "all" : chosen;
  const auto uses = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::any_of(names, [&](std::string_view name) { return transports.find(name) != transports.npos; });
  };
  const bool sockets = uses({"all", "tcp"}), memory = uses({"all", "sm", "shm", "mm", "posix", "sysv", "xpmem"});
  struct Setting {
    const char* variable;
    const char* name;
    const char* value;
    bool applies;
  };
  for (const Setting& setting : {Setting{"UCX_RNDV_THRESH", "RNDV_THRESH", "256k", true},
                                 Setting{"UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "264k", sockets},
                                 Setting{"UCX_MM_FIFO_ELEM_SIZE", "MM_FIFO_ELEM_SIZE", "1280", memory}}) {
    if (!setting.applies || std::getenv(setting.variable) != nullptr) continue;
    ucx_.config_modify(&config, setting.name, setting.value);
  }
}

void UcxWorker::open_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  require(ucx_.worker_create(context_, &params, &worker_), "make a worker");
  require(ucx_.worker_get_efd(worker_, &descriptor_), "tell by a descriptor that something has come");
  ucp_worker_attr_t limits{};
  limits.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  require(ucx_.worker_query(worker_, &limits), "tell how long a header may be");
  if (limits.max_am_header > sizeof(MessageHeader)) {
    longest_short_ = std::min(kShort, limits.max_am_header - sizeof(MessageHeader));
  }
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  require(ucx_.worker_get_address(worker_, &address, &bytes), "tell its address");
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucx_.worker_release_address(worker_, address);
  memory_.emplace(ucx_, context_);
  constexpr std::size_t kSample = 64;
  const std::string sample = has_rdma() ? "" : memory_->share(kSample).where;
  const auto length = static_cast<std::uint32_t>(sample.size());
  address_.append(sample).append(reinterpret_cast<const char*>(&length), sizeof(length));
}

// UCX reads its own part, and knows where that ends.
std::string_view UcxWorker::sample_of(std::string_view address) {
  std::uint32_t length = 0;
  if (address.size() < sizeof(length)) return {};
  address.remove_suffix(sizeof(length));
  std::memcpy(&length, address.data() + address.size(), sizeof(length));
  return address.substr(address.size() - std::min<std::size_t>(length, address.size()));
}

UcxWorker::~UcxWorker() { close(); }

void UcxWorker::close() {
  if (memory_) memory_->forget_mapped();
  if (worker_ != nullptr) ucx_.worker_destroy(worker_);
  memory_.reset();
  ucx_.cleanup(context_);
}

void UcxWorker::require(ucs_status_t status, const char* what) const {
  if (status == UCS_OK) return;
  throw Error(Error::Kind::system, name() + " cannot " + what + ": " + ucx_.sentence(status));
}

std::string UcxWorker::name() const { return std::string("UCX ") + ucx_.get_version_string(); }

std::unique_ptr<Transport> UcxWorker::connect(const StreamShape& shape, const GroupIdentity& identity,
                                              std::span<const std::uint32_t> remote,
                                              std::span<const std::string> addresses) {
  return std::make_unique<UcxTransport>(shape, identity, shared_from_this(), remote, addresses);
}

bool UcxWorker::progress() { return ucx_.worker_progress(worker_) != 0; }

bool UcxWorker::arm() { return ucx_.worker_arm(worker_) == UCS_OK; }

}  // namespace syntony
