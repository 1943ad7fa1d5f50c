// oneCCL's C++ interface as C functions, for oneccl.py, which compiles this once against the installed headers.
// Every function returns null, or what went wrong.
#include <cstring>
#include <exception>
#include <memory>
#include <oneapi/ccl.hpp>
#include <stdexcept>
#include <string>

namespace {

std::shared_ptr<ccl::kvs> store;
std::unique_ptr<ccl::communicator> communicator;

template <typename Call>
const char* told(const Call& call) {
  static thread_local std::string words;
  try {
    call();
    return nullptr;
  } catch (const std::exception& error) {
    words = error.what();
    return words.c_str();
  }
}

}  // namespace

extern "C" {

/// Rank 0: the address at which the others find it, in at most `room` bytes.
const char* oneccl_address(char* address, std::size_t room) {
  return told([&] {
    ccl::init();
    store = ccl::create_main_kvs();
    const auto bytes = store->get_address();
    if (bytes.size() > room) throw std::length_error("oneCCL's address is too long");
    std::memcpy(address, bytes.data(), bytes.size());
  });
}

const char* oneccl_join(int ranks, int rank, const char* address) {
  return told([&] {
    ccl::init();
    if (!store) {
      ccl::kvs::address_type bytes;
      std::memcpy(bytes.data(), address, bytes.size());
      store = ccl::create_kvs(bytes);
    }
    communicator = std::make_unique<ccl::communicator>(ccl::create_communicator(ranks, rank, store));
  });
}

const char* oneccl_all_reduce(const void* send, void* recv, std::size_t count, int type, int op) {
  return told(
      [&] { ccl::allreduce(send, recv, count, ccl::datatype(type), ccl::reduction(op), *communicator).wait(); });
}

const char* oneccl_all_gather(const void* send, void* recv, std::size_t count, int type, int /*op*/) {
  return told([&] { ccl::allgather(send, recv, count, ccl::datatype(type), *communicator).wait(); });
}

const char* oneccl_reduce_scatter(const void* send, void* recv, std::size_t count, int type, int op) {
  return told(
      [&] { ccl::reduce_scatter(send, recv, count, ccl::datatype(type), ccl::reduction(op), *communicator).wait(); });
}

const char* oneccl_all_to_all(const void* send, void* recv, std::size_t count, int type, int /*op*/) {
  return told([&] { ccl::alltoall(send, recv, count, ccl::datatype(type), *communicator).wait(); });
}

const char* oneccl_barrier() {
  return told([&] { ccl::barrier(*communicator).wait(); });
}

}  // extern "C"
