// Of this folder, what is built where libfabric's headers are not.
#include "core/error.hpp"
#include "core/libfabric/libfabric_port.hpp"

namespace syntony {

std::shared_ptr<Port> open_libfabric_port() {
  throw Error(Error::Kind::system,
              "this build of Syntony has no libfabric in it: install libfabric's headers (libfabric-dev on Debian, "
              "libfabric-devel on Fedora), and then Syntony again");
}

}  // namespace syntony
