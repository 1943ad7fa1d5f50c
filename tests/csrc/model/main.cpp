// memory_order litmus         checks the machine against known facts of the memory model
// memory_order explore        the shipped code, in every order and with every value that a load may read
// memory_order explore soak   the same with more ranks and rounds (minutes)
// memory_order weaken         weakens each memory order of the shipped code in turn and reports which scenario notices
//
// Prints a line for each; exits 1 if something is wrong, and says how it comes about.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "model/scenario.hpp"

namespace {

using namespace syntony::model;

constexpr std::uint64_t kMostRuns = 200'000'000;

std::vector<Scenario> scenarios(bool soak) {
  std::vector<Scenario> all;
  for (const std::span<const Scenario> some : {rounds(), streams(), board(), recorder()}) {
    std::ranges::copy_if(some, std::back_inserter(all), [&](const Scenario& one) { return soak || !one.soak; });
  }
  return all;
}

bool check_litmus() {
  bool right = true;
  for (const Litmus& one : litmus()) {
    const Outcome outcome = explore(one.begin, kMostRuns);
    const bool found = !outcome.fault.empty();
    std::printf("%-40s %-9s %6llu runs\n", std::string(one.name).c_str(), found ? "seen" : "forbidden",
                static_cast<unsigned long long>(outcome.runs));
    if (found == one.fault && (found || outcome.whole)) continue;
    std::printf("wrong: %s\n", outcome.fault.c_str());
    right = false;
  }
  return right;
}

bool explore_all(bool soak) {
  bool right = true;
  for (const Scenario& one : scenarios(soak)) {
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = explore(one.begin, kMostRuns);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("%-40s %9llu runs, %9llu of them left, %s, %.1f s\n", std::string(one.name).c_str(),
                static_cast<unsigned long long>(outcome.runs), static_cast<unsigned long long>(outcome.left),
                !outcome.fault.empty() ? "FAULT"
                : outcome.whole        ? "whole"
                                       : "NOT WHOLE",
                taken.count());
    if (!outcome.fault.empty()) std::printf("%s\n", outcome.fault.c_str());
    right = right && outcome.whole && outcome.fault.empty();
    std::fflush(stdout);
  }
  return right;
}

std::vector<Order> weaker(const Site& site) {
  if (site.order == Order::seq_cst) return {Order::acq_rel};
  if (site.order == Order::acq_rel) return {Order::acquire, Order::release};
  return {Order::relaxed};
}

bool weaken_all() {
  struct Known {
    Scenario scenario;
    Outcome outcome;
  };
  std::vector<Known> all;
  decltype(Outcome::sites) sites;
  for (const Scenario& one : scenarios(false)) {
    all.push_back({one, explore(one.begin, kMostRuns)});
    sites.insert(all.back().outcome.sites.begin(), all.back().outcome.sites.end());
  }
  std::ranges::sort(all, {}, [](const Known& one) { return one.outcome.runs; });
  bool right = true;
  for (const auto& [key, site] : sites) {
    for (const Order order : weaker(site)) {
      std::string found = "NOT FOUND";
      for (const Known& one : all) {
        if (!one.outcome.sites.contains(key)) continue;
        const Outcome outcome = explore(one.scenario.begin, kMostRuns, Weakened{site, order});
        if (outcome.fault.empty()) continue;
        found = std::string(one.scenario.name) + ": " + outcome.fault.substr(0, outcome.fault.find('\n'));
        break;
      }
      std::printf("%-45s %s\n", describe(site).c_str(), found.c_str());
      std::fflush(stdout);
      right = right && found != "NOT FOUND";
    }
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "litmus") return check_litmus() ? 0 : 1;
  if (what == "explore") return explore_all(argc > 2) ? 0 : 1;
  if (what == "weaken") return weaken_all() ? 0 : 1;
  std::fprintf(stderr, "memory_order: say litmus, explore or weaken\n");
  return 2;
}
