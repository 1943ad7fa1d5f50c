#include "core/process/loaded_library.hpp"

#include <dlfcn.h>

#include "core/error.hpp"

namespace syntony {
namespace {

std::string text_of(LoadedLibrary::Version version) {
  return std::to_string(version.first) + "." + std::to_string(version.second);
}

}  // namespace

LoadedLibrary::LoadedLibrary(const char* file, std::string name, const std::string& packages)
    : name_(std::move(name)), handle_(::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
  if (handle_ != nullptr) return;
  const char* const why = ::dlerror();
  throw Error(Error::Kind::system, name_ + " cannot be loaded (" + (why == nullptr ? file : why) + "): install it (" +
                                       packages + ") or let LD_LIBRARY_PATH say where it is");
}

void* LoadedLibrary::address_of(const char* symbol) const {
  void* const found = ::dlsym(handle_, symbol);
  if (found == nullptr) {
    throw Error(Error::Kind::system, name_ + " has no " + symbol + ": it is another one, or older than Syntony's");
  }
  return found;
}

void LoadedLibrary::require_version(Version found, Version built_for) const {
  if (found.first == built_for.first && found.second >= built_for.second) return;
  throw Error(Error::Kind::system, name_ + " " + text_of(found) + " is here, and Syntony was built for " +
                                       text_of(built_for) + " or newer: install that, or build it again");
}

}  // namespace syntony
