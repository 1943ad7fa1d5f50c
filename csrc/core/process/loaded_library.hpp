// A shared library that is loaded on first use and stays loaded; nothing is linked against it at build time.
#pragma once

#include <string>
#include <utility>

namespace syntony {

class LoadedLibrary {
 public:
  /// A version of a library.
  using Version = std::pair<unsigned, unsigned>;

  /// `file`: a name for dlopen(); if the process has loaded one already, that one is used. `name` and `packages` are
  /// for messages. Throws Error(system) if it cannot be loaded.
  LoadedLibrary(const char* file, std::string name, const std::string& packages);

  /// Throws Error(system) if the library has no such function.
  template <typename Function>
  void find(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(address_of(symbol));
  }
  /// Throws Error(system) if the versions are incompatible.
  void require_version(Version found, Version built_for) const;

 private:
  [[nodiscard]] void* address_of(const char* symbol) const;

  std::string name_;
  void* handle_;
};

}  // namespace syntony
