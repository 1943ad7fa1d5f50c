#include "core/ucx/ucx_memory.hpp"

#include <cstdint>
#include <cstring>

namespace syntony {

// `where` is the address in the process that shares it, followed by UCX's key.
UcxMemory::Shared UcxMemory::share(std::size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucp_mem_h memory = nullptr;
  if (ucx_.mem_map(context_, &params, &memory) != UCS_OK) return {};
  shared_.push_back(memory);
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  void* key = nullptr;
  std::size_t key_bytes = 0;
  if (ucx_.mem_query(memory, &attributes) != UCS_OK || ucx_.rkey_pack(context_, memory, &key, &key_bytes) != UCS_OK) {
    return {};
  }
  const auto address = reinterpret_cast<std::uint64_t>(attributes.address);
  std::string where(sizeof(address), '\0');
  std::memcpy(where.data(), &address, sizeof(address));
  where.append(static_cast<const char*>(key), key_bytes);
  ucx_.rkey_buffer_release(key);
  return {.begin = static_cast<std::byte*>(attributes.address), .where = std::move(where)};
}

std::byte* UcxMemory::map(ucp_ep_h to, std::string_view where) {
  std::uint64_t address = 0;
  if (where.size() <= sizeof(address)) return nullptr;
  std::memcpy(&address, where.data(), sizeof(address));
  ucp_rkey_h key = nullptr;
  if (ucx_.ep_rkey_unpack(to, where.data() + sizeof(address), &key) != UCS_OK) return nullptr;
  mapped_.push_back(key);
  void* here = nullptr;
  return ucx_.rkey_ptr(key, address, &here) == UCS_OK ? static_cast<std::byte*>(here) : nullptr;
}

void UcxMemory::forget_mapped() {
  for (const ucp_rkey_h key : mapped_) ucx_.rkey_destroy(key);
  mapped_.clear();
}

UcxMemory::~UcxMemory() {
  for (const ucp_mem_h memory : shared_) ucx_.mem_unmap(context_, memory);
}

}  // namespace syntony
