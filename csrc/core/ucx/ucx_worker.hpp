// A UCX worker for one group, and its context. Calls come from one thread at a time: the owner of progress, or the
// thread that creates or destroys the group.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/ucx/ucx_library.hpp"
#include "core/ucx/ucx_memory.hpp"
#include "core/ucx/ucx_port.hpp"

namespace syntony {

class UcxWorker final : public Port, public std::enable_shared_from_this<UcxWorker> {
 public:
  static constexpr std::size_t kShort = 1024;  // payload bytes that are worth copying behind their header

  /// Throws Error(system).
  explicit UcxWorker(const UcxLibrary& ucx = UcxLibrary::get());
  ~UcxWorker() override;
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  [[nodiscard]] const std::string& address() const override { return address_; }
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::unique_ptr<Transport> connect(const StreamShape& shape, const GroupIdentity& identity,
                                                   std::span<const std::uint32_t> remote,
                                                   std::span<const std::string> addresses) override;

  [[nodiscard]] const UcxLibrary& library() const { return ucx_; }
  [[nodiscard]] ucp_worker_h handle() const { return worker_; }
  /// Readable if progress() has something to do, once arm() has returned true.
  [[nodiscard]] const int& descriptor() const { return descriptor_; }
  /// Payloads up to this size are sent as part of their header.
  [[nodiscard]] std::size_t longest_short() const { return longest_short_; }
  /// What ranks of this machine may read of each other.
  [[nodiscard]] UcxMemory& memory() { return *memory_; }
  /// From a worker's address: memory of it that whoever shares a machine with it can map; empty if it has none.
  [[nodiscard]] static std::string_view sample_of(std::string_view address);
  /// True when anything moved.
  bool progress();
  /// True: any later event makes the descriptor readable. False: something is there already.
  [[nodiscard]] bool arm();

 private:
  void require(ucs_status_t status, const char* what) const;
  void suit_without_rdma(ucp_config_t& config) const;
  void open_worker();
  void close();

  const UcxLibrary& ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::optional<UcxMemory> memory_;
  std::string address_;
  std::size_t longest_short_ = 0;
  int descriptor_ = -1;
};

}  // namespace syntony
