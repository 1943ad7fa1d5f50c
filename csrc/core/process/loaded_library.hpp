// A shared library that this process loads when it first asks for it, and keeps: nothing of ours is linked with it.
#pragma once

#include <string>
#include <utility>

namespace syntony {

class LoadedLibrary {
 public:
  /// Of a program and the one that it was built for.
  using Version = std::pair<unsigned, unsigned>;

  /// `file`: as dlopen() finds it; a process that has loaded one already keeps it. `name`, `packages`: for people.
  /// Throws Error(system) where there is none.
  LoadedLibrary(const char* file, std::string name, const std::string& packages);

  /// Throws Error(system) where it has no such function.
  template <typename Function>
  void find(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(address_of(symbol));
  }
  /// Throws Error(system) for what was not made for it.
  void require_version(Version found, Version built_for) const;

 private:
  [[nodiscard]] void* address_of(const char* symbol) const;

  std::string name_;
  void* handle_;
};

}  // namespace syntony
