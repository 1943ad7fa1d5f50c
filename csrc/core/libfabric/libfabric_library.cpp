#include "core/libfabric/libfabric_library.hpp"

#include "core/process/loaded_library.hpp"

namespace syntony {
namespace {

LibfabricLibrary load() {
  const LoadedLibrary library("libfabric.so.1", "libfabric", "libfabric1 on Debian, libfabric on Fedora");
  LibfabricLibrary libfabric;
  library.find("fi_version", libfabric.version);
  const std::uint32_t version = libfabric.version();
  library.require_version({FI_MAJOR(version), FI_MINOR(version)}, {FI_MAJOR_VERSION, FI_MINOR_VERSION});
  library.find("fi_getinfo", libfabric.getinfo);
  library.find("fi_freeinfo", libfabric.freeinfo);
  library.find("fi_dupinfo", libfabric.dupinfo);
  library.find("fi_fabric", libfabric.fabric);
  library.find("fi_strerror", libfabric.strerror);
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
