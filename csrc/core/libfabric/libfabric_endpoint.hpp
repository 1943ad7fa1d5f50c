// A reliable endpoint of libfabric's (FI_EP_RDM), of one group, with what it needs: fabric, domain, address vector and
// completion queue. What is called on it is called by one thread at a time: whoever owns progress, or makes or takes
// down the group.
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

/// Something that libfabric is to do, and tells of when it is done.
struct LibfabricOperation {
  struct Ticket {
    fi_context2 context{};  // libfabric's, while it is under way
    LibfabricOperation* operation = nullptr;
  };
  Ticket ticket{.operation = this};  // what libfabric is told, and tells

  /// `error` is 0, or one of fi_errno.h's; `bytes` those received.
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
  /// Of the port of `address`. Throws Error(system), without a rank.
  [[nodiscard]] fi_addr_t peer(const std::string& address);
  /// The name by which the provider knows `memory`, for those that ask for one; it must outlive the endpoint's end.
  [[nodiscard]] void* describe(const void* memory, std::size_t bytes);
  /// Readable when there are completions, once arm() has said so; -1 where the provider has none.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Tells operations that they are done. True when there was one.
  bool progress();
  /// True: whatever comes from now on makes the descriptor readable. False: something is there already.
  [[nodiscard]] bool arm();
  /// Nothing is under way from here on, and no operation is told so.
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
  bool registers_ = false;  // memory is named before it is used
  int descriptor_ = -1;
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
  Handle<fid_av> peers_;
  Handle<fid_cq> queue_;
  std::map<std::pair<const void*, std::size_t>, Handle<fid_mr>> registered_;  // by where and how many bytes
  Handle<fid_ep> endpoint_;                                                   // goes first
};

}  // namespace syntony
