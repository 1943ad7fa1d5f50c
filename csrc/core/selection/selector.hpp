// Which Program runs a call. Uses only what every rank knows: the collective, the algorithm requested, the bytes on
// which ranks must agree, the boxes, whether CPUs are shared. Never local sizes or times, or ranks choose differently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/program/prepared_program.hpp"
#include "core/selection/size_range.hpp"
#include "core/transport.hpp"

namespace syntony {

/// An algorithm that is not a Program: collectives of one host through its memory (csrc/core/one_host).
inline constexpr std::string_view kSharedAlgorithm = "shared";
/// Another: all_reduce through switches that sum (csrc/core/in_network).
inline constexpr std::string_view kInNetworkAlgorithm = "in_network";

class Selector {
 public:
  /// `boxes`: the ranks of each host. `crowded`: some machine has more ranks than processors for them.
  Selector(std::uint32_t ranks, std::vector<std::vector<std::uint32_t>> boxes, bool crowded);

  /// The algorithms that can be requested by name for this collective, beside `auto` and loaded ones. Not every group
  /// supports all of them.
  [[nodiscard]] static std::vector<std::string> names(Collective collective);

  /// What runs a call.
  struct Selection {
    /// Either the Program, or an equivalent: in the host's memory (csrc/core/one_host) or at aggregators
    /// (csrc/core/in_network).
    enum class Way : std::uint8_t { program, shared, in_network };
    std::shared_ptr<const PreparedProgram> program;
    Way way = Way::program;
    [[nodiscard]] bool shared() const { return way == Way::shared; }
    [[nodiscard]] bool in_network() const { return way == Way::in_network; }
    [[nodiscard]] std::uint64_t fingerprint() const {
      return way == Way::program ? program->hash() : static_cast<std::uint64_t>(way);
    }
    [[nodiscard]] std::string_view name() const;
  };
  /// `bytes`: of the whole operation (nccl-tests' size); 0 if the ranks may not know the same number. Throws
  /// Error(invalid) naming what is available.
  [[nodiscard]] Selection select(Collective collective, std::uint32_t root, std::size_t bytes,
                                 const std::string& algorithm);
  /// What `auto` would choose without any table.
  [[nodiscard]] Selection select_own(Collective collective, std::uint32_t root, std::size_t bytes);
  /// Throws Error(invalid) if this runtime cannot run `program` (wrong number of ranks, unsupported instructions, ..).
  void add(const std::string& name, std::shared_ptr<const Program> program, const StreamShape& shape);
  /// From now on `name` means, for this collective, the first range whose `last` is at least the bytes; the last range
  /// also covers larger sizes. For `auto`, the table replaces our own choice, except where a range says `auto` again or
  /// its schedule has another root; other ranges name builders or schedules. Throws Error(invalid) if there are no
  /// ranges or their sizes do not ascend.
  void set_size_ranges(const std::string& name, Collective collective, std::vector<SizeRange> ranges);
  /// From now on these are the boxes: hosts that are near each other, as found by a probe. Must be equal on all ranks.
  /// Throws Error(invalid) unless they hold each rank exactly once.
  void set_levels(std::vector<std::vector<std::uint32_t>> levels);
  /// From now on `in_network` can be requested, if every rank names a way to an aggregator.
  void set_aggregation(const std::vector<std::string>& ways);
  /// From now on `two_shot` has these shares (core/program/algorithms/direct.hpp), and unless they are equal, `auto`
  /// chooses it for an all_reduce of more than a few bytes. Must be the same on all ranks. Throws Error(invalid) unless
  /// there is one per rank and not all are 0.
  void set_shares(std::vector<std::uint32_t> shares);
  /// True if `auto` is our own choice for this collective: no table, no rules, no shares that somebody has set.
  [[nodiscard]] bool own_choice(Collective collective);
  /// all_reduce as `two_shot` with these shares, for this call only.
  [[nodiscard]] Selection select_shares(const std::vector<std::uint32_t>& shares);
  /// What `select` would choose: the builder's or schedule's name, and why.
  [[nodiscard]] std::pair<std::string, std::string> choice(Collective collective, std::uint32_t root, std::size_t bytes,
                                                           const std::string& algorithm);

 private:
  using Key = std::tuple<std::string, Collective, std::uint32_t>;
  /// A builder or a loaded schedule, and why it was chosen.
  struct Choice {
    std::string name;
    std::string_view why;
  };
  [[nodiscard]] Choice automatic(Collective collective, std::size_t bytes) const;
  [[nodiscard]] bool one_hop_pays(std::uint32_t messages, std::size_t message_bytes) const;
  [[nodiscard]] Choice relayed_or_direct(Collective collective, std::size_t bytes) const;
  /// What `algorithm` resolves to for this collective, root and size.
  [[nodiscard]] Choice resolved(Collective collective, std::uint32_t root, std::size_t bytes,
                                const std::string& algorithm) const;
  [[nodiscard]] std::shared_ptr<const PreparedProgram> program_named(const std::string& name, Collective collective,
                                                                     std::uint32_t root);
  [[nodiscard]] Selection answer(const Choice& choice, Collective collective, std::uint32_t root, std::size_t bytes);
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> boxes() const;
  [[nodiscard]] bool one_host() const { return hosts_ == 1 && ranks_ > 1; }
  void tell(const Choice& choice, Collective collective, std::size_t bytes);

  std::uint32_t ranks_;
  std::size_t hosts_;
  bool crowded_;
  std::vector<std::vector<std::uint32_t>> boxes_;  // ranks near each other: those of a host, or more; empty: none
  std::vector<std::uint32_t> shares_;              // what each rank sums of an all_reduce; empty: equal shares
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const PreparedProgram>> built_;
  std::map<std::string, std::shared_ptr<const PreparedProgram>> loaded_;
  std::map<std::pair<std::string, Collective>, std::vector<SizeRange>> ranges_;
  std::vector<std::string> aggregation_;                     // by rank
  std::set<std::tuple<Collective, std::string, int>> told_;  // by size, rounded up to a power of two
  /// The last choice of `auto`: training requests the same again and again.
  struct Recent {
    std::optional<std::tuple<Collective, std::uint32_t, std::size_t>> question;
    Selection answer;
  };
  std::array<Recent, 64> recent_;
  std::pair<std::vector<std::uint32_t>, std::shared_ptr<const PreparedProgram>> last_shares_;  // of select_shares()
};

}  // namespace syntony
