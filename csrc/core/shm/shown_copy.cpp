#include "core/shm/shown_copy.hpp"

#include "core/kernels/vector_copy.hpp"

namespace syntony {

void ShownCopy::operator()(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto through = copies_by_string() ? vector_copy : paged_copy_to_peers;
  ways_(bytes,
        [&](FasterWay::Way way) { (way == FasterWay::Way::second ? streaming_copy : through)(to, from, bytes); });
}

}  // namespace syntony
