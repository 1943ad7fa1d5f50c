#include "core/libfabric/libfabric_endpoint.hpp"

#include <array>
#include <cstdlib>
#include <type_traits>

#include "core/error.hpp"
#include "core/libfabric/libfabric_transport.hpp"

namespace syntony {
namespace {

constexpr char kEnd = '\n';  // of the provider's name in an address

LibfabricOperation* operation_of(void* ticket) {
  return ticket == nullptr ? nullptr : static_cast<LibfabricOperation::Ticket*>(ticket)->operation;
}

}  // namespace

std::shared_ptr<Port> open_libfabric_port() { return std::make_shared<LibfabricEndpoint>(); }

LibfabricEndpoint::LibfabricEndpoint(const LibfabricLibrary& libfabric) : libfabric_(libfabric) {
  struct Free {
    decltype(&fi_freeinfo) freeinfo;
    void operator()(fi_info* info) const { freeinfo(info); }
  };
  using Info = std::unique_ptr<fi_info, Free>;
  const Info hints(libfabric_.dupinfo(nullptr), {libfabric_.freeinfo});
  hints->caps = FI_MSG | FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->tx_attr->msg_order = FI_ORDER_SAS;  // a fence must follow the messages before it
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  fi_info* found = nullptr;
  const int result =
      libfabric_.getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints.get(), &found);
  if (result != 0) {
    const char* const chosen = std::getenv("FI_PROVIDER");
    throw Error(Error::Kind::system,
                libfabric_.name() + " has no provider" + (chosen == nullptr ? "" : std::string(" ") + chosen) +
                    " of reliable datagrams with tagged messages in order (" + libfabric_.sentence(result) +
                    "): set FI_PROVIDER to one that has (tcp, efa, cxi, verbs; `fi_info -t FI_EP_RDM` lists them)");
  }
  const Info info(found, {libfabric_.freeinfo});
  provider_ = info->fabric_attr->prov_name;
  domain_name_ = info->domain_attr->name;
  open(*info);
}

void LibfabricEndpoint::open(fi_info& info) {
  registers_ = (info.domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  const auto make = [this](auto& handle, const char* what, const auto& opening) {
    typename std::remove_reference_t<decltype(handle)>::pointer object = nullptr;
    require(opening(&object), what);
    handle.reset(object);
  };
  make(fabric_, "begin", [&](fid_fabric** to) { return libfabric_.fabric(info.fabric_attr, to, nullptr); });
  make(domain_, "open its domain", [&](fid_domain** to) { return fi_domain(fabric_.get(), &info, to, nullptr); });
  fi_av_attr addresses{};
  addresses.type = FI_AV_UNSPEC;
  make(peers_, "hold addresses", [&](fid_av** to) { return fi_av_open(domain_.get(), &addresses, to, nullptr); });
  fi_cq_attr completions{};
  completions.format = FI_CQ_FORMAT_MSG;
  completions.wait_obj = FI_WAIT_FD;
  const auto open_queue = [&](fid_cq** to) { return fi_cq_open(domain_.get(), &completions, to, nullptr); };
  fid_cq* queue = nullptr;
  if (open_queue(&queue) == 0) {
    queue_.reset(queue);
    if (fi_control(&queue->fid, FI_GETWAIT, &descriptor_) != 0) descriptor_ = -1;
  } else {  // shared memory's provider has no descriptor to sleep on
    completions.wait_obj = FI_WAIT_NONE;
    make(queue_, "hold completions", open_queue);
  }
  make(endpoint_, "make an endpoint", [&](fid_ep** to) { return fi_endpoint(domain_.get(), &info, to, nullptr); });
  require(fi_ep_bind(endpoint_.get(), &peers_->fid, 0), "use addresses");
  require(fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV), "use completions");
  require(fi_enable(endpoint_.get()), "begin to receive");
  std::array<char, 1024> name{};
  std::size_t bytes = name.size();
  require(fi_getname(&endpoint_->fid, name.data(), &bytes), "tell its address");
  address_ = provider_ + kEnd + std::string(name.data(), bytes);
}

void LibfabricEndpoint::close() {
  endpoint_.reset();
  registered_.clear();
  queue_.reset();
  peers_.reset();
  domain_.reset();
  fabric_.reset();
}

void LibfabricEndpoint::require(long result, const char* what) const {
  if (result == 0) return;
  throw Error(Error::Kind::system, name() + " cannot " + what + ": " + libfabric_.sentence(result));
}

std::string LibfabricEndpoint::name() const {
  const char* const chosen = std::getenv("FI_PROVIDER");
  return libfabric_.name() + ", provider " + provider_ + " on " + domain_name_ +
         (chosen == nullptr ? ", the first that it offers" : std::string(", of FI_PROVIDER=") + chosen);
}

std::unique_ptr<Transport> LibfabricEndpoint::connect(const StreamShape& shape, const GroupIdentity& identity,
                                                      std::span<const std::uint32_t> remote,
                                                      std::span<const std::string> addresses) {
  for (const std::uint32_t rank : remote) {
    const std::string theirs = addresses[rank].substr(0, addresses[rank].find(kEnd));
    if (theirs == provider_) continue;
    throw Error(Error::Kind::mismatch,
                "rank " + std::to_string(rank) + " has libfabric's provider " + theirs + " and rank " +
                    std::to_string(identity.rank) + " " + provider_ + ": set FI_PROVIDER to one that all ranks have",
                {static_cast<int>(rank), static_cast<int>(identity.rank)});
  }
  return std::make_unique<LibfabricTransport>(shape, identity, shared_from_this(), remote, addresses);
}

fi_addr_t LibfabricEndpoint::peer(const std::string& address) {
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const int added = fi_av_insert(peers_.get(), address.data() + address.find(kEnd) + 1, 1, &peer, 0, nullptr);
  if (added != 1) {
    throw Error(Error::Kind::system, name() + " does not know its address" +
                                         (added < 0 ? " (" + libfabric_.sentence(added) + ")" : std::string()));
  }
  return peer;
}

void* LibfabricEndpoint::describe(const void* memory, std::size_t bytes) {
  if (!registers_ || memory == nullptr || bytes == 0) return nullptr;
  Handle<fid_mr>& known = registered_[{memory, bytes}];
  if (!known) {
    fid_mr* region = nullptr;
    require(fi_mr_reg(domain_.get(), memory, bytes, FI_SEND | FI_RECV, 0, 0, 0, &region, nullptr), "use memory");
    known.reset(region);
  }
  return fi_mr_desc(known.get());
}

bool LibfabricEndpoint::progress() {
  std::array<fi_cq_msg_entry, 16> completed;
  const ssize_t count = fi_cq_read(queue_.get(), completed.data(), completed.size());
  if (count == -FI_EAGAIN || count == 0) return false;
  if (count == -FI_EAVAIL) {
    tell_of_error();
    return true;
  }
  require(count < 0 ? count : 0, "read completions");
  for (ssize_t i = 0; i < count; ++i) {
    const fi_cq_msg_entry& entry = completed[static_cast<std::size_t>(i)];
    if (LibfabricOperation* operation = operation_of(entry.op_context)) operation->done(0, entry.len);
  }
  return true;
}

void LibfabricEndpoint::tell_of_error() {
  fi_cq_err_entry failed{};
  if (fi_cq_readerr(queue_.get(), &failed, 0) != 1) return;
  if (LibfabricOperation* operation = operation_of(failed.op_context)) {
    operation->done(failed.err == 0 ? FI_EOTHER : failed.err, failed.len);
  }
}

bool LibfabricEndpoint::arm() {
  if (descriptor_ < 0) return false;
  fid* watched = &queue_->fid;
  return fi_trywait(fabric_.get(), &watched, 1) == 0;
}

}  // namespace syntony
