// core/recorder/recorder.cpp: a record is filled, used by the owner of progress, reused for the next operation, and
// read by any thread at any time.
#include "core/recorder/recorder.hpp"

#include <array>

#include "core/atomic.hpp"
#include "model/scenario.hpp"

namespace syntony::model {
namespace {

struct Shared {
  Recorder recorder{{.group = "g", .rank = 0, .members = {0}}, 1};  // one slot
  Atomic<std::uint64_t> launched;                                   // the queue between caller and owner of progress
  std::array<Recorder::Ticket, 3> tickets;
  std::array<std::int64_t, 3> began{};  // a time before it could start,
  std::array<std::int64_t, 3> ended{};  // and one after it had finished; 0: not yet
};

/// Many words contain the number.
Recorder::Facts facts(std::uint64_t number) {
  Recorder::Facts facts;
  facts.sequence = facts.elements = facts.tag = number;
  facts.timeout = static_cast<std::int64_t>(number);
  facts.kind = Recorder::kBarrier;
  return facts;
}

void end(Shared& all, std::uint64_t number) {
  const Recorder::Ticket& ticket = all.tickets[number];
  all.began[number] = nanoseconds_now();
  ticket.admitted();
  ticket.started();
  ticket.finished(false, true);
  all.ended[number] = nanoseconds_now();
}

void read(Shared& all) {
  for (const Recorder::Record& record : all.recorder.records()) {
    const std::uint64_t number = record.sequence;
    require(number >= 1 && number <= 2 && record.elements == number && record.tag == number &&
                record.timeout == static_cast<std::int64_t>(number),
            "parts of two records are told as one");
    if (record.state >= Recorder::State::started) {
      require(record.started >= all.began[number], "a record has started that says not when, or another one's time");
    }
    if (record.state >= Recorder::State::completed) {
      require(record.finished >= record.started, "a record has finished that says not when");
      require(record.by_caller, "a record has finished that says not by whom");
      require(all.ended[number] == 0 || record.finished <= all.ended[number], "another record's time is told");
    }
  }
}

/// One thread calls and makes progress, another reads. The second operation only begins, or also ends.
Begin one_writer(bool ends) {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Shared>();
    return {[=] {
              for (const std::uint64_t number : {1, 2}) {
                all->tickets[number] = all->recorder.open(facts(number), "");
                if (number == 1 || ends) end(*all, number);
              }
            },
            [=] { read(*all); }};
  };
}

/// A caller and the owner of progress, connected by a queue; one thread's stores never interleave with another's.
Begin caller_and_owner(bool reader) {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Shared>();
    std::vector<std::function<void()>> threads{[=] {
                                                 for (const std::uint64_t number : {1, 2}) {
                                                   all->tickets[number] = all->recorder.open(facts(number), "");
                                                   all->launched.store(number, Order::release);
                                                 }
                                               },
                                               [=] {
                                                 for (const std::uint64_t number : {1, 2}) {
                                                   while (all->launched.load(Order::acquire) < number) idle();
                                                   end(*all, number);
                                                 }
                                                 read(*all);
                                               }};
    if (reader) threads.emplace_back([=] { read(*all); });
    return threads;
  };
}

/// An operation from before the threads begin is replaced by another one of a caller and an owner.
Begin one_gives_way() {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Shared>();
    all->tickets[1] = all->recorder.open(facts(1), "");
    end(*all, 1);
    return {[=] {
              all->tickets[2] = all->recorder.open(facts(2), "");
              all->launched.store(2, Order::release);
            },
            [=] {
              while (all->launched.load(Order::acquire) < 2) idle();
              end(*all, 2);
            },
            [=] { read(*all); }};
  };
}

const std::array kAll{
    Scenario{"recorder: one gives way", one_gives_way()},
    Scenario{"recorder: one writer, one reader", one_writer(false)},
    Scenario{"recorder: one writer of two, one reader", one_writer(true), true},
    Scenario{"recorder: caller and owner", caller_and_owner(false)},
    Scenario{"recorder: caller, owner and reader", caller_and_owner(true), true},
};

}  // namespace

std::span<const Scenario> recorder() { return kAll; }

}  // namespace syntony::model
