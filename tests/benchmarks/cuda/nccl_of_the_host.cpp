// libnccl's functions for ranks that are threads and memory that is the host's: int32 and float, sums. Arguments must
// match NCCL's header exactly, or results are wrong.
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

struct UniqueId {
  char internal[128];
};
struct Comm {
  int ranks, rank;
};
using Stream = void*;

namespace {

struct Message {
  int from, to;
  char* data;
  std::size_t bytes;
};

std::mutex mutex;
std::condition_variable changed;
int arrived = 0;
std::uint64_t turn = 0;
std::vector<const void*> sources(64);
std::vector<Message> sent;
thread_local std::vector<Message> receives;

void meet(const Comm& comm) {
  std::unique_lock lock(mutex);
  const std::uint64_t mine = turn;
  if (++arrived == comm.ranks) {
    arrived = 0;
    ++turn;
    changed.notify_all();
    return;
  }
  changed.wait(lock, [&] { return turn != mine; });
}

std::size_t size_of(int type) {
  static const std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

template <class T>
void sum(const Comm& comm, void* to, std::size_t first, std::size_t count) {
  std::vector<T> total(count);
  for (int rank = 0; rank < comm.ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) total[i] += static_cast<const T*>(sources[rank])[first + i];
  }
  meet(comm);  // all have read
  if (to != nullptr) std::memcpy(to, total.data(), count * sizeof(T));
  meet(comm);
}

int reduce(const Comm& comm, const void* from, void* to, std::size_t first, std::size_t count, int type, int op) {
  if (op != 0 || (type != 2 && type != 7)) return 4;
  sources[comm.rank] = from;
  meet(comm);
  if (type == 2) {
    sum<std::int32_t>(comm, to, first, count);
  } else {
    sum<float>(comm, to, first, count);
  }
  return 0;
}

}  // namespace

extern "C" {
const char* ncclGetErrorString(int status) { return status == 4 ? "invalid argument" : "some error"; }
int ncclGetVersion(int* version) { return *version = VERSION, 0; }
int ncclGetUniqueId(UniqueId* id) { return std::memset(id->internal, 7, sizeof id->internal), 0; }
int ncclCommInitRank(Comm** comm, int ranks, UniqueId id, int rank) {
  if (id.internal[0] != 7 || id.internal[127] != 7) return 4;
  *comm = new Comm{ranks, rank};
  return 0;
}
int ncclCommDestroy(Comm* comm) { return delete comm, 0; }
int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int op, Comm* comm, Stream) {
  return reduce(*comm, from, to, 0, count, type, op);
}
int ncclReduce(const void* from, void* to, std::size_t count, int type, int op, int root, Comm* comm, Stream) {
  return reduce(*comm, from, comm->rank == root ? to : nullptr, 0, count, type, op);
}
int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int op, Comm* comm, Stream) {
  return reduce(*comm, from, to, static_cast<std::size_t>(comm->rank) * count, count, type, op);
}
int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, Comm* comm, Stream) {
  sources[comm->rank] = from;
  meet(*comm);
  std::memmove(to, sources[root], count * size_of(type));
  meet(*comm);
  return 0;
}
int ncclAllGather(const void* from, void* to, std::size_t count, int type, Comm* comm, Stream) {
  sources[comm->rank] = from;
  meet(*comm);
  const std::size_t bytes = count * size_of(type);
  for (int rank = 0; rank < comm->ranks; ++rank) {
    std::memmove(static_cast<char*>(to) + static_cast<std::size_t>(rank) * bytes, sources[rank], bytes);
  }
  meet(*comm);
  return 0;
}
int ncclGroupStart() { return receives.clear(), 0; }
int ncclSend(const void* from, std::size_t count, int type, int peer, Comm* comm, Stream) {
  const std::scoped_lock lock(mutex);
  sent.push_back({comm->rank, peer, static_cast<char*>(const_cast<void*>(from)), count * size_of(type)});
  return 0;
}
int ncclRecv(void* to, std::size_t count, int type, int peer, Comm* comm, Stream) {
  receives.push_back({peer, comm->rank, static_cast<char*>(to), count * size_of(type)});
  return 0;
}
int ncclGroupEnd() {
  const Comm comm{RANKS, 0};  // fixed at compile time: a group without calls knows no communicator
  meet(comm);
  for (const Message& wanted : receives) {
    for (const Message& message : sent) {
      if (message.from == wanted.from && message.to == wanted.to && message.bytes == wanted.bytes) {
        std::memmove(wanted.data, message.data, wanted.bytes);
      }
    }
  }
  meet(comm);
  {
    const std::scoped_lock lock(mutex);
    sent.clear();
  }
  meet(comm);
  return 0;
}
}
