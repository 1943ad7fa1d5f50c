#include "core/process/host.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/error.hpp"

namespace syntony {
namespace {

std::string namespace_id(const char* path) {
  struct stat info{};
  if (stat(path, &info) != 0) return "?";
  return std::to_string(info.st_dev) + "." + std::to_string(info.st_ino);
}

}  // namespace

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

std::string host_key() {
  if (const char* override_key = std::getenv("SYNTONY_HOST"); override_key != nullptr && *override_key != '\0') {
    return std::string("named:") + override_key;
  }
  return boot_id() + "/" + namespace_id("/proc/self/ns/pid") + "/" + namespace_id("/proc/self/ns/net") + "/" +
         std::to_string(geteuid());
}

bool has_rdma() {
  std::error_code none;
  return std::filesystem::directory_iterator("/sys/class/infiniband", none) != std::filesystem::directory_iterator();
}

std::string host_name() {
  if (const char* name = std::getenv("SYNTONY_HOST"); name != nullptr && *name != '\0') return name;
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("localhost");
}

Token random_token() {
  Token token{};
  if (getrandom(token.data(), sizeof(token), 0) != static_cast<ssize_t>(sizeof(token))) {
    throw Error(Error::Kind::system, system_sentence("no random numbers from the kernel"));
  }
  return token;
}

std::uint64_t environment_number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return otherwise;
  std::uint64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, fault] = std::from_chars(text, end, value);
  if (fault != std::errc() || rest != end) {
    throw Error(Error::Kind::invalid, std::string(variable) + "=" + text + " is not a whole number");
  }
  return value;
}

std::string system_sentence(std::string_view what) {
  const int code = errno;
  return std::string(what) + ": " + std::strerror(code);
}

}  // namespace syntony
