#include "model/machine.hpp"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace syntony::model {
namespace {

constexpr std::size_t kMostThreads = 4;
constexpr std::size_t kMostPlaces = 64;
constexpr std::size_t kStackBytes = std::size_t{256} << 10U;
constexpr std::uint64_t kGap = std::uint64_t{1} << 40U;  // between neighbouring stores, so that others fit between
constexpr std::size_t kMostSteps = 2000;                 // per run: more mean that something does not end

bool acquires(Order order) { return order != Order::relaxed && order != Order::release; }
bool releases(Order order) { return order != Order::relaxed && order != Order::acquire; }

std::string_view name_of(Order order) {
  switch (order) {
    case Order::relaxed:
      return "relaxed";
    case Order::acquire:
      return "acquire";
    case Order::release:
      return "release";
    case Order::acq_rel:
      return "acq_rel";
    default:
      return "seq_cst";
  }
}

std::string_view name_of(Access access) {
  constexpr std::array<std::string_view, 6> kNames{"load", "store", "exchange", "fence", "ring", "answer"};
  return kNames[static_cast<std::size_t>(access)];
}

/// The oldest stores a thread may still read, and what has happened before.
struct View {
  std::array<std::uint64_t, kMostPlaces> seen{};
  std::array<std::uint32_t, kMostThreads> clock{};

  void join_seen(const View& other) {
    for (std::size_t i = 0; i < kMostPlaces; ++i) seen[i] = std::max(seen[i], other.seen[i]);
  }
  void join(const View& other) {
    join_seen(other);
    for (std::size_t i = 0; i < kMostThreads; ++i) clock[i] = std::max(clock[i], other.clock[i]);
  }
};

struct Store {
  std::uint64_t time = 0;  // its rank in the modification order
  std::uint64_t value = 0;
  View view{};             // what an acquire that reads it joins
  bool exchanged = false;  // nothing may come between it and the store before
};

struct Place {
  const void* address = nullptr;
  std::vector<Store> stores{};
};

struct Plain {
  std::size_t writer = 0;
  std::uint32_t written = 0;                       // by the writer's clock; 0: never
  std::array<std::uint32_t, kMostThreads> read{};  // by each thread's clock, last
};

struct Step {
  Access access = Access::load;
  std::size_t place = 0;
  Order order = Order::relaxed;
  std::uint64_t value = 0;
  std::uint64_t expected = 0;
  Where where{};
};

/// A step that was taken, to report how a fault came about.
struct Taken {
  std::size_t thread = 0;
  Step step;
  std::uint64_t found = 0;
};

bool ships(const Where& where) {
  return std::string_view(where.file_name()).find("csrc/core/") != std::string_view::npos;
}

std::string_view file_of(const Where& where) {
  const std::string_view path = where.file_name();
  return path.substr(path.rfind('/') + 1);
}

bool independent(const Step& a, const Step& b) {
  if (a.access == Access::fence || b.access == Access::fence) {
    return a.access != b.access || a.order != Order::seq_cst || b.order != Order::seq_cst;
  }
  return a.place != b.place || (a.access == Access::load && b.access == Access::load);
}

/// A step that is independent of how much of the other threads comes before: a load may still read what was there
/// before their stores, and a store may precede theirs in the modification order.
bool first_of_all(const Step& step) {
  return step.access == Access::store || (step.access == Access::fence && step.order != Order::seq_cst);
}

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Left {};  // abandons this run: unwinds a thread

class Thread {
 public:
  enum class State : std::uint8_t { runs, polls, ended };

  void begin(std::function<void()> body, ucontext_t* back) {
    body_ = std::move(body);
    state = State::runs;
    view = kept = gathered = View{};
    polled.clear();
    polled_before.clear();
    leave = false;
    ::getcontext(&context);
    context.uc_stack.ss_sp = stack_.data();
    context.uc_stack.ss_size = stack_.size();
    context.uc_link = back;
    const auto self = std::bit_cast<std::uint64_t>(this);
    ::makecontext(&context, reinterpret_cast<void (*)()>(&Thread::enter), 2, static_cast<unsigned>(self),
                  static_cast<unsigned>(self >> 32U));
  }

  ucontext_t context{};
  State state = State::ended;
  View view;      // now
  View kept;      // at the last release fence: published by relaxed stores
  View gathered;  // of what relaxed loads have read: joined by an acquire fence
  Step next;
  std::uint64_t result = 0;
  bool success = false;
  std::vector<std::pair<std::size_t, std::uint64_t>> polled, polled_before;  // place and time of what was read
  bool leave = false;
  std::exception_ptr failure;

 private:
  static void enter(unsigned low, unsigned high) {
    auto* self = std::bit_cast<Thread*>(std::uint64_t{high} << 32U | low);
    try {
      self->body_();
    } catch (const Left&) {
    } catch (...) {
      self->failure = std::current_exception();
    }
    self->body_ = nullptr;
    self->state = State::ended;
  }

  std::function<void()> body_;
  std::vector<std::byte> stack_ = std::vector<std::byte>(kStackBytes);
};

/// A point at which a run may continue in several ways.
struct Choice {
  unsigned taken = 0;
  unsigned open = 0;    // of a value: number of alternatives; of a thread: one bit for each still to be tried
  unsigned asleep = 0;  // threads whose next step has been tried here before
  bool of_thread = false;
};

class Machine {
 public:
  Machine(const Begin& begin, const std::optional<Weakened>& weakened) : begin_(begin), weakened_(weakened) {}

  Outcome explore(std::uint64_t most_runs) {
    running_ = this;
    do {
      ++outcome_.runs;
      try {
        run();
      } catch (const Left&) {
        ++outcome_.left;
      } catch (const Fault& fault) {
        outcome_.fault = fault.what() + trace();
      }
      unwind();
      if (!outcome_.fault.empty()) break;
      outcome_.whole = !another();
    } while (!outcome_.whole && outcome_.runs < most_runs);
    running_ = nullptr;
    return std::move(outcome_);
  }

  static Machine& running() { return *running_; }
  [[nodiscard]] static bool runs() { return running_ != nullptr && running_->current_ != nullptr; }

  // ---- called by threads ------------------------------------------------------------------------------------------

  Thread& take(Step step, const Where& where) {
    Thread& thread = *current_;
    step.where = where;
    if (step.order != Order::relaxed && ships(where)) {
      Site site{std::string(file_of(where)), where.line(), where.column(), step.access, step.order};
      if (weakened_ && weakened_->site.key() == site.key()) step.order = weakened_->order;
      auto key = site.key();
      outcome_.sites.try_emplace(std::move(key), std::move(site));
    }
    thread.next = step;
    pause();
    return thread;
  }
  std::size_t place_of(const void* address, std::uint64_t initial) {
    const auto known = std::ranges::find(places_, address, &Place::address);
    if (known != places_.end()) return static_cast<std::size_t>(known - places_.begin());
    if (places_.size() == kMostPlaces) throw Fault("more places than the machine keeps");
    places_.push_back({address, {Store{.value = initial}}});
    return places_.size() - 1;
  }
  /// Before the threads begin, nobody can see the earlier values.
  void set(std::size_t place, std::uint64_t value) { places_[place].stores = {Store{.value = value}}; }
  [[nodiscard]] std::uint64_t last(std::size_t place) const { return places_[place].stores.back().value; }

  void idle() {
    Thread& thread = *current_;
    if (thread.polled == thread.polled_before) {
      left_ = true;
      throw Left();
    }
    thread.polled_before = std::exchange(thread.polled, {});
    thread.state = Thread::State::polls;
    pause();
  }
  void forget_polled() {
    current_->polled.clear();
    current_->polled_before.clear();
  }
  [[nodiscard]] std::size_t bell() const { return kMostPlaces + index(*current_); }
  void read_plain(const void* address) {
    if (!runs()) return;
    Plain& plain = plain_[address];
    const std::size_t me = index(*current_);
    if (plain.written > current_->view.clock[plain.writer]) race(plain.writer, me, "writes what", "reads");
    plain.read[me] = tick();
  }
  void write_plain(const void* address) {
    if (!runs()) return;
    Plain& plain = plain_[address];
    const std::size_t me = index(*current_);
    if (plain.written > current_->view.clock[plain.writer]) race(plain.writer, me, "writes what", "writes");
    for (std::size_t other = 0; other < threads_; ++other) {
      if (other != me && plain.read[other] > current_->view.clock[other]) race(other, me, "reads what", "writes");
    }
    plain.writer = me;
    plain.written = tick();
  }
  void zero_after(void* address, std::size_t bytes) { written_.emplace_back(address, bytes); }

  std::uint64_t number_of(std::string bytes) {
    const auto [entry, fresh] = numbers_.emplace(std::move(bytes), texts_.size());
    if (fresh) texts_.push_back(entry->first);
    return entry->second;
  }
  const std::string& bytes_of(std::uint64_t number) { return texts_[number]; }

 private:
  std::size_t index(const Thread& thread) const { return static_cast<std::size_t>(&thread - pool_.data()); }
  std::uint32_t tick() { return ++current_->view.clock[index(*current_)]; }
  [[noreturn]] void race(std::size_t first, std::size_t second, std::string_view one, std::string_view other) {
    throw Fault("thread " + std::to_string(first) + " " + std::string(one) + " thread " + std::to_string(second) + " " +
                std::string(other) + ", unordered");
  }

  void pause() {
    Thread& thread = *current_;
    ::swapcontext(&thread.context, &here_);
    if (thread.leave) throw Left();
  }

  /// Lets a thread go on to its next step, or its end.
  void resume(Thread& thread) {
    current_ = &thread;
    ::swapcontext(&here_, &thread.context);
    current_ = nullptr;
    if (thread.failure) {
      const std::exception_ptr failure = std::exchange(thread.failure, nullptr);
      try {
        std::rethrow_exception(failure);
      } catch (const Fault&) {
        throw;
      } catch (const Left&) {
        throw;
      } catch (const std::exception& error) {
        throw Fault(std::string("thrown: ") + error.what());
      }
    }
    if (left_) throw Left();
  }

  void unwind() {
    for (std::size_t i = 0; i < threads_; ++i) {
      if (pool_[i].state == Thread::State::ended) continue;
      pool_[i].leave = true;
      current_ = &pool_[i];
      ::swapcontext(&here_, &pool_[i].context);
      pool_[i].failure = nullptr;
    }
    current_ = nullptr;
  }

  void run() {
    for (const auto& [address, bytes] : written_) std::fill_n(static_cast<std::byte*>(address), bytes, std::byte{0});
    written_.clear();
    places_.clear();
    plain_.clear();
    fences_ = View{};
    taken_.clear();
    depth_ = 0;
    asleep_ = 0;
    left_ = false;
    std::vector<std::function<void()>> bodies = begin_();
    threads_ = bodies.size();
    if (threads_ > kMostThreads) throw Fault("more threads than the machine has");
    bells_.fill(0);
    for (std::size_t i = 0; i < threads_; ++i) pool_[i].begin(std::move(bodies[i]), &here_);
    for (std::size_t i = 0; i < threads_; ++i) resume(pool_[i]);
    std::size_t last = 0;
    for (std::size_t steps = 0;; ++steps) {
      if (steps == kMostSteps) throw Fault("does not end");
      for (std::size_t i = 0; i < threads_; ++i) {
        if (pool_[i].state == Thread::State::polls && changed(pool_[i])) {
          pool_[i].state = Thread::State::runs;
          resume(pool_[i]);
        }
      }
      unsigned able = 0;
      bool ended = true;
      for (std::size_t i = 0; i < threads_; ++i) {
        ended &= pool_[i].state == Thread::State::ended;
        if (pool_[i].state != Thread::State::runs) continue;
        if (pool_[i].next.access == Access::answer && bells_[i] == 0) continue;
        able |= 1U << i;
      }
      if (ended) return;
      if (able == 0) throw Fault("all wait for each other");
      const auto early = std::ranges::find_if(
          pool_.begin(), pool_.begin() + static_cast<std::ptrdiff_t>(threads_),
          [](const Thread& thread) { return thread.state == Thread::State::runs && first_of_all(thread.next); });
      const bool chosen = early == pool_.begin() + static_cast<std::ptrdiff_t>(threads_);
      last = chosen ? choose_thread(able, last) : index(*early);
      Thread& thread = pool_[last];
      for (unsigned i = 0; i < threads_; ++i) {
        if (!independent(pool_[i].next, thread.next)) asleep_ &= ~(1U << i);
      }
      current_ = &thread;
      perform(thread);
      current_ = nullptr;
      resume(thread);
    }
  }

  /// True if something that it polled is no longer the last store.
  [[nodiscard]] bool changed(const Thread& thread) const {
    return std::ranges::any_of(thread.polled_before,
                               [&](const auto& read) { return places_[read.first].stores.back().time > read.second; });
  }

  // ---- choices ----------------------------------------------------------------------------------------------------

  std::size_t choose_thread(unsigned able, std::size_t last) {
    if (depth_ == choices_.size()) {
      const unsigned open = able & ~asleep_;
      if (open == 0) throw Left();
      const unsigned first =
          (open >> last & 1U) != 0 ? static_cast<unsigned>(last) : static_cast<unsigned>(std::countr_zero(open));
      choices_.push_back({.taken = first, .open = open, .asleep = asleep_, .of_thread = true});
    }
    const Choice& choice = choices_[depth_++];
    asleep_ = choice.asleep;
    return choice.taken;
  }

  std::size_t choose_value(std::size_t count) {
    if (count == 1) return 0;
    if (depth_ == choices_.size()) choices_.push_back({.open = static_cast<unsigned>(count)});
    return choices_[depth_++].taken;
  }

  /// Sets up the next run's choices. False if there are none.
  bool another() {
    while (!choices_.empty()) {
      Choice& choice = choices_.back();
      if (!choice.of_thread) {
        if (++choice.taken < choice.open) return true;
      } else {
        choice.open &= ~(1U << choice.taken);
        choice.asleep |= 1U << choice.taken;
        if (choice.open != 0) {
          choice.taken = static_cast<unsigned>(std::countr_zero(choice.open));
          return true;
        }
      }
      choices_.pop_back();
    }
    return false;
  }

  // ---- steps ------------------------------------------------------------------------------------------------------

  void perform(Thread& thread) {
    const Step& step = thread.next;
    tick();
    switch (step.access) {
      case Access::load:
        thread.result = load(thread, step).value;
        break;
      case Access::store:
        store(thread, step);
        break;
      case Access::exchange:
        exchange(thread, step);
        break;
      case Access::fence:
        fence(thread, step.order);
        break;
      case Access::ring:
        bells_[step.value] = 1;
        break;
      case Access::answer:
        bells_[index(thread)] = 0;
        break;
    }
    taken_.push_back({index(thread), step, thread.result});
  }

  const Store& load(Thread& thread, const Step& step) {
    const std::vector<Store>& stores = places_[step.place].stores;
    const auto oldest = std::ranges::find(stores, thread.view.seen[step.place], &Store::time) - stores.begin();
    const std::size_t back = choose_value(stores.size() - static_cast<std::size_t>(oldest));
    return read(thread, step, stores[stores.size() - 1 - back]);
  }
  const Store& read(Thread& thread, const Step& step, const Store& from) {
    thread.view.seen[step.place] = from.time;
    if (acquires(step.order)) {
      thread.view.join(from.view);
    } else {
      thread.gathered.join(from.view);
    }
    thread.polled.emplace_back(step.place, from.time);
    return from;
  }

  void store(Thread& thread, const Step& step) {
    std::vector<Store>& stores = places_[step.place].stores;
    std::vector<std::size_t> before{stores.size()};  // where it may come in the modification order
    for (std::size_t i = stores.size(); i-- > 0 && stores[i].time > thread.view.seen[step.place];) {
      if (!stores[i].exchanged) before.push_back(i);
    }
    insert(thread, step, before[choose_value(before.size())], nullptr);
  }

  void exchange(Thread& thread, const Step& step) {
    std::vector<Store>& stores = places_[step.place].stores;
    std::vector<std::size_t> from;
    for (std::size_t i = stores.size(); i-- > 0 && stores[i].time >= thread.view.seen[step.place];) {
      const bool taken = i + 1 < stores.size() && stores[i + 1].exchanged;
      if (stores[i].value != step.expected || !taken) from.push_back(i);
    }
    const std::size_t index = from[choose_value(from.size())];
    const Store found = read(thread, step, stores[index]);
    thread.result = found.value;
    thread.success = found.value == step.expected;
    if (thread.success) insert(thread, step, index + 1, &found.view);
  }

  void insert(Thread& thread, const Step& step, std::size_t before, const View* exchanged) {
    std::vector<Store>& stores = places_[step.place].stores;
    const std::uint64_t low = stores[before - 1].time;
    const std::uint64_t time = before == stores.size() ? low + kGap : low + (stores[before].time - low) / 2;
    thread.view.seen[step.place] = time;
    Store fresh{.time = time, .value = step.value, .view = releases(step.order) ? thread.view : thread.kept};
    fresh.view.seen[step.place] = time;
    if (exchanged != nullptr) fresh.view.join(*exchanged);  // a release sequence continues
    fresh.exchanged = exchanged != nullptr;
    stores.insert(stores.begin() + static_cast<std::ptrdiff_t>(before), std::move(fresh));
  }

  void fence(Thread& thread, Order order) {
    if (acquires(order)) thread.view.join(thread.gathered);
    if (order == Order::seq_cst) {
      thread.view.join_seen(fences_);
      fences_.join_seen(thread.view);
    }
    if (releases(order)) thread.kept = thread.view;
  }

  [[nodiscard]] std::string trace() const {
    std::string text;
    for (const auto& [thread, step, found] : taken_) {
      text += "\n    thread " + std::to_string(thread) + ": " + std::string(name_of(step.access));
      const bool writes = step.access == Access::store || step.access == Access::exchange;
      if (step.access == Access::load || step.access == Access::exchange) text += " finds " + std::to_string(found);
      if (writes || step.access == Access::ring) text += " " + std::to_string(step.value);
      if (step.access == Access::ring || step.access == Access::answer) continue;
      text += ", " + std::string(name_of(step.order)) + ", " + std::string(file_of(step.where)) + ":" +
              std::to_string(step.where.line());
    }
    return text;
  }

  static inline Machine* running_ = nullptr;

  const Begin& begin_;
  const std::optional<Weakened>& weakened_;
  Outcome outcome_;
  std::vector<Choice> choices_;
  std::size_t depth_ = 0;  // of the next choice in this run
  unsigned asleep_ = 0;
  bool left_ = false;

  ucontext_t here_{};
  Thread* current_ = nullptr;
  std::size_t threads_ = 0;
  std::vector<Thread> pool_ = std::vector<Thread>(kMostThreads);

  std::vector<Place> places_;
  std::unordered_map<const void*, Plain> plain_;
  std::array<unsigned, kMostThreads> bells_{};
  View fences_;  // what the last sequentially consistent fence has passed on
  std::vector<std::pair<void*, std::size_t>> written_;
  std::vector<Taken> taken_;
  std::map<std::string, std::uint64_t> numbers_{{"", 0}};
  std::vector<std::string> texts_{""};
};

}  // namespace

std::string describe(const Site& site) {
  return std::string(name_of(site.access)) + " " + site.file + ":" + std::to_string(site.line) + " " +
         std::string(name_of(site.order));
}

Outcome explore(const Begin& begin, std::uint64_t most_runs, const std::optional<Weakened>& weakened) {
  return Machine(begin, weakened).explore(most_runs);
}

std::uint64_t load(const void* place, std::uint64_t initial, Order order, const Where& where) {
  Machine& machine = Machine::running();
  if (!Machine::runs()) return machine.last(machine.place_of(place, initial));
  return machine.take({.access = Access::load, .place = machine.place_of(place, initial), .order = order}, where)
      .result;
}

void store(const void* place, std::uint64_t initial, std::uint64_t value, Order order, const Where& where) {
  Machine& machine = Machine::running();
  if (!Machine::runs()) return machine.set(machine.place_of(place, initial), value);
  machine.take({.access = Access::store, .place = machine.place_of(place, initial), .order = order, .value = value},
               where);
}

bool exchange(const void* place, std::uint64_t initial, std::uint64_t& expected, std::uint64_t value, Order order,
              const Where& where) {
  Machine& machine = Machine::running();
  const Thread& thread = machine.take({.access = Access::exchange,
                                       .place = machine.place_of(place, initial),
                                       .order = order,
                                       .value = value,
                                       .expected = expected},
                                      where);
  expected = thread.result;
  return thread.success;
}

void pass_fence(Order order, const Where& where) {
  if (Machine::runs()) Machine::running().take({.access = Access::fence, .order = order}, where);
}

std::uint64_t number_of(std::string bytes) { return Machine::running().number_of(std::move(bytes)); }
const std::string& bytes_of(std::uint64_t number) { return Machine::running().bytes_of(number); }

void reads(const void* place) { Machine::running().read_plain(place); }
void writes(void* place, std::size_t bytes) {
  Machine::running().write_plain(place);
  Machine::running().zero_after(place, bytes);
}

void put(std::byte* place, std::uint8_t value) {
  writes(place, 1);
  *place = std::byte{value};
}
std::uint8_t get(const std::byte* place) {
  reads(place);
  return std::to_integer<std::uint8_t>(*place);
}

void require(bool holds, const char* what) {
  if (!holds) throw Fault(what);
}

void idle() { Machine::running().idle(); }

void answer() {
  Machine& machine = Machine::running();
  machine.take({.access = Access::answer, .place = machine.bell()}, Where{});
  machine.forget_polled();
}

void ring(std::uint32_t thread) {
  Machine::running().take({.access = Access::ring, .place = kMostPlaces + thread, .value = thread}, Where{});
}

}  // namespace syntony::model
