// A reliable libfabric endpoint (FI_EP_RDM) for one group, with what it needs: fabric, domain, address vector and
// completion queue. Calls come from one thread at a time: the owner of progress, or the thread that creates or destroys
// the group.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/libfabric/libfabric_library.hpp"
#include "core/libfabric/libfabric_port.hpp"

namespace syntony {

/// An operation that libfabric executes, and reports when it is done.
struct LibfabricOperation {
  struct Ticket {
    fi_context2 context{};  // used by libfabric while the operation is in flight
    LibfabricOperation* operation = nullptr;
  };
  Ticket ticket{.operation = this};  // passed to libfabric and returned in completions

  /// `error` is 0 or a value from fi_errno.h; `bytes`: the number received.
  virtual void done(int error, std::size_t bytes) = 0;

  LibfabricOperation() = default;
  LibfabricOperation(const LibfabricOperation&) = delete;
  LibfabricOperation& operator=(const LibfabricOperation&) = delete;
  virtual ~LibfabricOperation() = default;
};

class LibfabricEndpoint final : public Port, public std::enable_shared_from_this<LibfabricEndpoint> {
 public:
  /// Throws Error(system).
  explicit LibfabricEndpoint(const LibfabricLibrary& libfabric = LibfabricLibrary::get());
  ~LibfabricEndpoint() override = default;
  LibfabricEndpoint(const LibfabricEndpoint&) = delete;
  LibfabricEndpoint& operator=(const LibfabricEndpoint&) = delete;

  [[nodiscard]] const std::string& address() const override { return address_; }
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::unique_ptr<Transport> connect(const StreamShape& shape, const GroupIdentity& identity,
                                                   std::span<const std::uint32_t> remote,
                                                   std::span<const std::string> addresses) override;

  [[nodiscard]] const LibfabricLibrary& library() const { return libfabric_; }
  [[nodiscard]] fid_ep* handle() const { return endpoint_.get(); }
  [[nodiscard]] fid_cq* completions() const { return queue_.get(); }
  /// The peer with the port of `address`. Throws Error(system), without a rank.
  [[nodiscard]] fi_addr_t peer(const std::string& address);
  /// The provider's descriptor of `memory`, for providers that need one; the memory must outlive the endpoint.
  [[nodiscard]] void* describe(const void* memory, std::size_t bytes);
  /// Readable if there are completions, once arm() has returned true; -1 if the provider has none.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Notifies operations that are done. True if there was one.
  bool progress();
  /// True: any later event makes the descriptor readable. False: something is there already.
  [[nodiscard]] bool arm();
  /// Cancels everything in flight without notifying the operations.
  void close();

 private:
  struct Close {
    template <typename Object>
    void operator()(Object* object) const {
      fi_close(&object->fid);
    }
  };
  template <typename Object>
  using Handle = std::unique_ptr<Object, Close>;

  void open(fi_info& info);
  void require(long result, const char* what) const;
  void tell_of_error();

  const LibfabricLibrary& libfabric_;
  std::string provider_;  // "tcp;ofi_rxm"
  std::string domain_name_;
  std::string address_;
  bool registers_ = false;  // memory must be registered before use
  int descriptor_ = -1;
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
  Handle<fid_av> peers_;
  Handle<fid_cq> queue_;
  std::map<std::pair<const void*, std::size_t>, Handle<fid_mr>> registered_;  // by address and length
  Handle<fid_ep> endpoint_;                                                   // destroyed first
};

}  // namespace syntony
