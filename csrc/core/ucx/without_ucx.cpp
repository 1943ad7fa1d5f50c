// The part of this folder that is built if UCX's headers are missing.
#include "core/error.hpp"
#include "core/ucx/ucx_port.hpp"

namespace syntony {

std::shared_ptr<Port> open_ucx_port() {
  throw Error(Error::Kind::system,
              "this build of Syntony has no UCX in it: install UCX's headers (libucx-dev on Debian, ucx-devel on "
              "Fedora), and then Syntony again");
}

}  // namespace syntony
