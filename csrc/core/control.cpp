#include "core/control.hpp"

namespace syntony {
namespace {

// One word at a time: every operation computes this hash, including those that take a microsecond.
void mix(std::uint64_t& hash, std::uint64_t value) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15ULL;  // 2^64 over the golden ratio
  hash = (hash ^ value) * kOdd;
  hash ^= hash >> 32U;
}

bool rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

std::string reduction(const Descriptor& d) { return d.average != 0 ? "average" : std::string(name_of(d.op)); }
std::string title(const Descriptor& d) { return d.barrier != 0 ? "barrier" : std::string(name_of(d.collective)); }

}  // namespace

std::string describe(const Descriptor& d) {
  if (d.sequence == 0) return "no operation";
  std::string text = d.ordinal != 0
                         ? title(d) + " #" + std::to_string(d.ordinal)
                         : std::string(name_of(d.priority)) + " " + title(d) + " #" + std::to_string(d.sequence);
  if (d.barrier != 0) return text;
  text += " (";
  if (reduces(d.collective)) text += reduction(d) + " of ";
  if (d.elements != 0) text += std::to_string(d.elements) + " x ";
  text += name_of(d.dtype);
  if (rooted(d.collective)) text += ", root " + std::to_string(d.root);
  return text + ")";
}

std::string difference(const Descriptor& mine, const Descriptor& theirs) {
  std::string text;
  const auto add = [&](std::string_view what, const std::string& a, const std::string& b) {
    if (a != b) text += (text.empty() ? "" : ", ") + std::string(what) + " " + a + " against " + b;
  };
  add("operation", title(mine), title(theirs));
  add("dtype", std::string(name_of(mine.dtype)), std::string(name_of(theirs.dtype)));
  add("element count", std::to_string(mine.elements), std::to_string(theirs.elements));
  if (mine.elements == theirs.elements && mine.counts != theirs.counts) {
    const auto kind = [](const Descriptor& d) { return d.counts == 0 ? "the same for all ranks" : "rank by rank"; };
    if (mine.counts == 0 || theirs.counts == 0) {
      add("element counts", kind(mine), kind(theirs));
    } else {
      text += std::string(text.empty() ? "" : ", ") + "the element counts of the ranks, though not their sum";
    }
  }
  if (reduces(mine.collective)) add("reduction", reduction(mine), reduction(theirs));
  if (rooted(mine.collective)) add("root", std::to_string(mine.root), std::to_string(theirs.root));
  if (mine.ordinal != 0 && theirs.ordinal != 0) {
    add("place in the order", std::to_string(mine.ordinal), std::to_string(theirs.ordinal));
  } else if (mine.ordinal != theirs.ordinal) {
    const auto chosen = [](const Descriptor& d) { return std::string(d.ordinal == 0 ? name_of(d.priority) : "usual"); };
    add("priority", chosen(mine), chosen(theirs));
  }
  if (text.empty() && mine.program != theirs.program) text = "the algorithm (its Program)";
  return text;
}

void check_post(std::string_view message) {
  if (message.size() > kLongestPost) {
    throw Error(Error::Kind::system, "a posted message of " + std::to_string(message.size()) +
                                         " bytes is too long for the control plane, which takes " +
                                         std::to_string(kLongestPost));
  }
}

std::uint64_t fingerprint_of(const Descriptor& d) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  mix(hash, d.sequence);
  mix(hash, d.ordinal);
  mix(hash, d.elements ^ d.counts);
  mix(hash, d.program);
  mix(hash, d.root);
  mix(hash, static_cast<std::uint64_t>(d.collective) | static_cast<std::uint64_t>(d.dtype) << 8 |
                static_cast<std::uint64_t>(d.op) << 16 | static_cast<std::uint64_t>(d.barrier) << 24 |
                static_cast<std::uint64_t>(d.priority) << 32 | static_cast<std::uint64_t>(d.average) << 40);
  return hash;
}

std::uint64_t counts_of(std::span<const Block> blocks) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const Block& block : blocks) mix(hash, block.elements);
  return hash | 1U;
}

}  // namespace syntony
