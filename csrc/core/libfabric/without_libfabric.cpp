// The part of this folder that is built if libfabric's headers are missing.
#include "core/error.hpp"
#include "core/libfabric/libfabric_port.hpp"

namespace syntony {

std::shared_ptr<Port> open_libfabric_port() {
  throw Error(Error::Kind::system,
              "this build of Syntony has no libfabric in it: install libfabric's headers (libfabric-dev on Debian, "
              "libfabric-devel on Fedora), and then Syntony again");
}

}  // namespace syntony
