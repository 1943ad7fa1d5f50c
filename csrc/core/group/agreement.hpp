// A meeting of all ranks in which nobody fails alone: if one rank cannot contribute, all learn of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/bootstrap.hpp"

namespace syntony {

/// Bootstrap::all_gather of what `bring` returns on each rank. If `bring` throws on any rank, this throws on all: the
/// exception itself on that rank, elsewhere an Error that names the rank. If several ranks fail, it reports the cause:
/// a rank that blames another is believed if that one has failed, too.
std::vector<std::string> agree(Bootstrap& bootstrap, const std::string& name, const std::function<std::string()>& bring,
                               const std::function<std::string(std::uint32_t)>& name_of_rank);

}  // namespace syntony
