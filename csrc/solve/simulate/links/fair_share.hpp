// Max-min fair rates: how flows share links if none can gain without taking from a slower one.
//
//     level    link a [ f1 | f2 | f3 ]  full at 1/3: f1, f2, f3 stay there
//       |      link b [ f3 |   f4    ]  f4 goes on rising, full at 2/3
//
// Progressive filling (Bertsekas and Gallager, "Data Networks", 6.5.2): all rates rise together; a full link settles
// the flows on it. A flow may load a link by a weight other than 1 per byte/s: one spread over several paths loads each
// of them by a part, one that stands for many equal flows loads a link several times.
//
// After a change only a part is filled again. Let L be the lowest level at which the change can have an effect: the
// rate of a removed flow, or what a new flow gets if all flows on its links rise together. Below L the filling is the
// same as before, so flows slower than L keep their rates; of the others only those connected to the changed links by a
// chain of such flows and links can change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace syntony {

/// A flow on a link; `weight`: bytes/s on the link per byte/s of the flow.
struct Crossing {
  std::uint32_t link = 0;
  double weight = 1;
};

class FairShare {
 public:
  /// `capacity` of every link, positive, in the unit of the rates.
  explicit FairShare(std::vector<double> capacity);

  /// Flows are identified by small numbers that the caller chooses. The crossings are of distinct links, at least one.
  void add(std::uint32_t flow, std::span<const Crossing> crossings);
  void remove(std::uint32_t flow);

  /// Updates the rates and returns the flows whose rate may be new; valid until the next call.
  std::span<const std::uint32_t> settle();
  [[nodiscard]] double rate(std::uint32_t flow) const { return rate_[flow]; }

  /// The links whose load the last `settle` may have changed, and the load of a link.
  [[nodiscard]] std::span<const std::uint32_t> settled_links() const { return region_; }
  [[nodiscard]] double load(std::uint32_t link) const;

 private:
  static constexpr double kUnsettled = std::numeric_limits<double>::infinity();
  static constexpr std::size_t kFew = 64;  // links that are found faster without a heap

  struct Place {  // a flow on a link, seen from the flow
    std::uint32_t link;
    std::uint32_t position;  // among the link's flows
    double weight;
  };
  struct Rider {  // a flow on a link, seen from the link
    std::uint32_t flow;
    std::uint32_t place;  // among the flow's places
    double weight;
  };
  struct Link {
    std::vector<Rider> riders;
    double capacity = 0;
    double left = 0;           // while filling: the capacity not taken by settled flows,
    double weight = 0;         // the weight of the flows that still rise,
    std::uint32_t rising = 0;  // and their number
    bool in_region = false;
  };
  struct Level {
    double level;
    std::uint32_t link;
    friend bool operator>(const Level& a, const Level& b) {
      return a.level != b.level ? a.level > b.level : a.link > b.link;
    }
  };

  void begin_change();
  void enter(std::uint32_t link);
  [[nodiscard]] double floor() const;
  void find_region(double floor);
  [[nodiscard]] double level_of(std::uint32_t link) const { return links_[link].left / links_[link].weight; }
  void fill(double floor);
  template <class Settle>
  void fill_few(const Settle& settle);
  template <class Settle>
  void fill_many(const Settle& settle);
  void settle_riders(Link& link, double level);

  // Per flow. Columns, because filling reads rates far more often than anything else.
  std::vector<std::vector<Place>> places_;
  std::vector<double> rate_;
  std::vector<double> before_;  // the rate before this settle
  std::vector<std::uint8_t> in_region_;

  std::vector<Link> links_;
  std::vector<std::uint32_t> added_;
  double slowest_removed_ = kUnsettled;
  bool settled_ = false;
  std::vector<std::uint32_t> region_;  // links, initially those that add and remove touched
  std::vector<std::uint32_t> changed_;
  std::vector<Level> levels_;  // a heap; a link's level only rises, so an entry may be too low but never too high
};

}  // namespace syntony
