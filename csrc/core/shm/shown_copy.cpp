#include "core/shm/shown_copy.hpp"

#include "core/kernels/vector_copy.hpp"

namespace syntony {

void ShownCopy::operator()(std::byte* to, const std::byte* from, std::size_t bytes) {
  ways_(bytes,
        [&](FasterWay::Way way) { (way == FasterWay::Way::second ? streaming_copy : vector_copy)(to, from, bytes); });
}

}  // namespace syntony
