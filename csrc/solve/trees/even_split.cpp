#include "solve/trees/even_split.hpp"

#include <algorithm>

namespace syntony {

void share_evenly(std::span<std::int64_t> in, std::span<std::int64_t> out, const std::vector<bool>& wanted,
                  std::span<std::int64_t> shares) {
  const std::size_t width = out.size();
  std::vector<std::int64_t> row(in.size(), 0), column(width, 0);  // what a link's wanted partners can take or supply
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (std::size_t o = 0; o < width; ++o) {
      if (!wanted[i * width + o]) continue;
      row[i] += out[o];
      column[o] += in[i];
    }
  }
  const auto give = [&](std::size_t i, std::size_t o, std::int64_t most) {
    const std::int64_t amount = std::min({in[i], out[o], most});
    shares[i * width + o] += amount;
    in[i] -= amount;
    out[o] -= amount;
    return amount > 0;
  };
  const std::vector<std::int64_t> whole_in(in.begin(), in.end()), whole_out(out.begin(), out.end());
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (std::size_t o = 0; o < width; ++o) {
      if (!wanted[i * width + o]) continue;
      const auto product = static_cast<__int128>(whole_in[i]) * whole_out[o];
      give(i, o, static_cast<std::int64_t>(product / std::max({row[i], column[o], std::int64_t{1}})));
    }
  }
  // The remainder of the division is dealt in rotation, so that no pair gets it all, and in strides, so that a link
  // with few units reaches partners all around (and not one box full of them).
  const std::int64_t most = in.empty() ? 0 : *std::ranges::max_element(in);
  const std::size_t stride = std::max<std::size_t>(1, width / static_cast<std::size_t>(most + 1));
  std::vector<std::size_t> offsets;
  for (std::size_t first = 0; first < stride; ++first) {
    for (std::size_t offset = first; offset < width; offset += stride) offsets.push_back(offset);
  }
  for (bool any = true; any;) {
    any = false;
    for (const std::size_t offset : offsets) {
      for (std::size_t i = 0; i < in.size(); ++i) {
        const std::size_t o = (i + offset) % width;
        if (!wanted[i * width + o]) continue;
        const std::int64_t some = std::min(in[i], out[o]) / static_cast<std::int64_t>(width);
        any |= give(i, o, std::max<std::int64_t>(some, 1));
      }
    }
  }
}

}  // namespace syntony
