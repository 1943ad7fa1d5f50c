// Who and where this process is; decides whether two ranks share memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace syntony {

/// Equal for two processes that can share memory and see each other's pids: kernel boot id, pid and network namespace,
/// and user. `SYNTONY_HOST` replaces it, so that one machine can act as several (tests, emulated networks).
[[nodiscard]] std::string host_key();

/// Of the running kernel: equal for all processes of a machine, whatever namespaces they are in.
[[nodiscard]] std::string boot_id();

/// A readable name, for messages.
[[nodiscard]] std::string host_name();

/// True if this host has an RDMA NIC: InfiniBand, RoCE.
[[nodiscard]] bool has_rdma();

/// 128 random bits from the kernel.
using Token = std::array<std::uint64_t, 2>;
[[nodiscard]] Token random_token();

/// An environment variable's value as a number, or `otherwise`. Throws Error(invalid) naming the variable.
[[nodiscard]] std::uint64_t environment_number(const char* variable, std::uint64_t otherwise);

/// "<what>: <the operating system's sentence for errno>"
[[nodiscard]] std::string system_sentence(std::string_view what);

}  // namespace syntony
