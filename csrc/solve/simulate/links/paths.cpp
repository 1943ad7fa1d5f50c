#include "solve/simulate/links/paths.hpp"

#include "solve/column_checks.hpp"

namespace syntony {

void Paths::validate(std::size_t links) const {
  check_size("weight", weight, link.size());
  check_offset("path_offset", path_offset, link.size(), 0);
  check_offset("set_offset", set_offset, paths(), 1);
  check_amounts("weight", weight, true);
  check_numbers("link", link, links);
}

}  // namespace syntony
