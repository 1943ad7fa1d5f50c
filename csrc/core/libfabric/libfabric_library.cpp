#include "core/libfabric/libfabric_library.hpp"

#include <dlfcn.h>

#include "core/error.hpp"

namespace syntony {
namespace {

constexpr const char* kName = "libfabric.so.1";  // a process that has loaded one already keeps it

template <typename Function>
void find(void* library, const char* name, Function& function) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) {
    throw Error(Error::Kind::system, std::string(kName) + " has no " + name + ": it is not libfabric");
  }
  function = reinterpret_cast<Function>(found);
}

LibfabricLibrary load() {
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw Error(Error::Kind::system, "libfabric cannot be loaded (" + std::string(why == nullptr ? kName : why) +
                                         "): install it (libfabric1 on Debian, libfabric on Fedora) or let "
                                         "LD_LIBRARY_PATH say where it is");
  }
  LibfabricLibrary libfabric;
  find(library, "fi_version", libfabric.version);
  if (libfabric.version() < FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION)) {
    throw Error(Error::Kind::system, libfabric.name() + " is here, and Syntony was built for " +
                                         std::to_string(FI_MAJOR_VERSION) + "." + std::to_string(FI_MINOR_VERSION) +
                                         " or newer: install that, or build it again");
  }
  find(library, "fi_getinfo", libfabric.getinfo);
  find(library, "fi_freeinfo", libfabric.freeinfo);
  find(library, "fi_dupinfo", libfabric.dupinfo);
  find(library, "fi_fabric", libfabric.fabric);
  find(library, "fi_strerror", libfabric.strerror);
  return libfabric;
}

}  // namespace

std::string LibfabricLibrary::name() const {
  return "libfabric " + std::to_string(FI_MAJOR(version())) + "." + std::to_string(FI_MINOR(version()));
}

const LibfabricLibrary& LibfabricLibrary::get() {
  static const LibfabricLibrary libfabric = load();
  return libfabric;
}

}  // namespace syntony
