// A meeting of all ranks in which nobody can fail alone: whatever one of them cannot bring, all hear of.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/bootstrap.hpp"

namespace syntony {

/// Bootstrap::all_gather of what `bring` returns on each rank. Where it throws on some rank, this throws on all: there
/// the exception itself, elsewhere an Error that names the rank. Of several, it is the cause: a rank that blames
/// another one is believed if that one has failed, too.
std::vector<std::string> agree(Bootstrap& bootstrap, const std::string& name, const std::function<std::string()>& bring,
                               const std::function<std::string(std::uint32_t)>& name_of_rank);

}  // namespace syntony
