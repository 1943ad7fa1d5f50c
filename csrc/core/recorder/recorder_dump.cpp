#include "core/recorder/recorder_dump.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "core/process/host.hpp"
#include "core/process/log.hpp"
#include "core/recorder/pickle.hpp"

namespace syntony {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Recorder>> recorders;
  std::vector<std::shared_ptr<Recorder>> kept;  // all of the process, if dumps are wanted at the end
};

bool at_end() {
  const char* wanted = std::getenv("SYNTONY_TRACE_AT_END");
  return wanted != nullptr && std::string_view(wanted) == "1" && !trace_folder().empty();
}

Registry& registry() {
  static auto* const registry = new Registry();  // never destroyed: threads may still record while the process ends
  return *registry;
}

/// What the dump calls a group: those operations of a group that share one order and numbering. Operations whose
/// callers chose a priority (Recorder::Facts::priority) are in a section named after that priority.
struct Section {
  std::shared_ptr<Recorder> recorder;
  std::uint8_t priority;
  std::string name;
  std::uint64_t launched = 0;
};

/// A record with the position of its section in the dump.
struct Line {
  std::size_t section;
  Recorder::Record record;
};

/// Makes names unique: torch's analyzer tells groups apart by them.
std::vector<std::string> names_of(const Recorders& recorders) {
  std::vector<std::string> names;
  for (const std::shared_ptr<Recorder>& recorder : recorders) {
    const std::string& name = recorder->identity().group;
    const auto before = std::ranges::count(recorders.begin(), recorders.begin() + std::ssize(names), name,
                                           [](const auto& other) { return other->identity().group; });
    names.push_back(before == 0 ? name : name + " (" + std::to_string(before + 1) + ")");
  }
  return names;
}

std::string list_of(const std::vector<std::uint32_t>& numbers) {
  std::string list;
  for (const std::uint32_t number : numbers) list += (list.empty() ? "[" : ", ") + std::to_string(number);
  return list + "]";
}

/// torch's names of our element types (c10::toString).
std::string_view torch_name(DType dtype) {
  static const std::map<std::string_view, std::string_view> kNames{{"uint8", "Byte"},
                                                                   {"int8", "Char"},
                                                                   {"uint16", "UInt16"},
                                                                   {"int16", "Short"},
                                                                   {"uint32", "UInt32"},
                                                                   {"int32", "Int"},
                                                                   {"uint64", "UInt64"},
                                                                   {"int64", "Long"},
                                                                   {"float16", "Half"},
                                                                   {"bfloat16", "BFloat16"},
                                                                   {"float32", "Float"},
                                                                   {"float64", "Double"},
                                                                   {"bool", "Bool"},
                                                                   {"complex32", "ComplexHalf"},
                                                                   {"complex64", "ComplexFloat"},
                                                                   {"complex128", "ComplexDouble"},
                                                                   {"float8_e4m3fn", "Float8_e4m3fn"},
                                                                   {"float8_e5m2", "Float8_e5m2"},
                                                                   {"float8_e4m3fnuz", "Float8_e4m3fnuz"},
                                                                   {"float8_e5m2fnuz", "Float8_e5m2fnuz"},
                                                                   {"float8_e8m0fnu", "Float8_e8m0fnu"}};
  return kNames.at(name_of(dtype));
}

bool message(const Recorder::Record& record) {
  return record.kind == Recorder::kSend || record.kind == Recorder::kReceive;
}

/// "gloo:send 0->1", with ranks in the group.
std::string torch_title(const Recorder::Record& record, std::uint32_t rank) {
  const std::string self = std::to_string(rank), peer = std::to_string(record.peer);
  if (record.kind == Recorder::kSend) return "gloo:send " + self + "->" + peer;
  if (record.kind == Recorder::kReceive) return "gloo:recv " + self + "<-" + peer;
  return "gloo:" + std::string(name_of_kind(record.kind));
}

/// torch has no failed operations: they are retired without being completed.
std::string_view torch_state(const Recorder::Record& record) {
  if (record.state == Recorder::State::completed) return "completed";
  return record.started != 0 ? "started" : "scheduled";
}

void put_sizes(Pickle& pickle, std::string_view key, std::uint64_t elements) {
  pickle.key(key).begin_list().begin_list().number(static_cast<std::int64_t>(elements)).end_list().end_list();
}

void put_time(Pickle& pickle, std::string_view key, std::int64_t nanoseconds, std::int64_t to_wall) {
  pickle.key(key);
  nanoseconds == 0 ? pickle.none() : pickle.number(nanoseconds + to_wall);
}

void put_entry(Pickle& pickle, const Line& line, const Recorder& recorder, const std::string& group,
               std::int64_t record_id, std::int64_t to_wall) {
  const Recorder::Record& record = line.record;
  // For ranks without data torch writes the sizes of the whole tensors, because its analyzer compares ranks.
  const bool both = record.kind == static_cast<std::uint8_t>(Collective::broadcast) ||
                    record.kind == static_cast<std::uint8_t>(Collective::reduce);
  const std::uint64_t larger = std::max(record.input_elements, record.output_elements);
  const auto sequence = static_cast<std::int64_t>(record.sequence);
  const std::string dtype(torch_name(record.dtype));
  pickle.begin_dictionary();
  pickle.key("record_id").number(record_id).key("op_id").number(static_cast<std::int64_t>(record.number));
  pickle.key("pg_id").number(static_cast<std::int64_t>(line.section));
  pickle.key("process_group").begin_tuple().text(group).text("undefined").end_tuple();
  pickle.key("collective_seq_id").number(sequence).key("p2p_seq_id").number(0);
  pickle.key("is_p2p").boolean(message(record));
  pickle.key("profiling_name").text(torch_title(record, recorder.identity().rank));
  put_sizes(pickle, "input_sizes", both ? larger : record.input_elements);
  put_sizes(pickle, "output_sizes", both ? larger : record.output_elements);
  pickle.key("input_dtypes").begin_list().text(dtype).end_list();
  pickle.key("output_dtypes").begin_list().text(dtype).end_list();
  pickle.key("state").text(torch_state(record));
  pickle.key("retired").boolean(record.state >= Recorder::State::completed);
  pickle.key("timeout_ms").number(record.timeout / 1'000'000);
  put_time(pickle, "time_created_ns", record.created, to_wall);
  put_time(pickle, "time_discovered_started_ns", record.started, to_wall);
  put_time(pickle, "time_discovered_completed_ns", record.finished, to_wall);
  pickle.key("frames").begin_list().end_list();
  // Fields beyond torch's.
  pickle.key("collective").text(name_of_kind(record.kind)).key("progress").text(name_of(record.state));
  pickle.key("algorithm").text(record.program_name).key("op").text(name_of(record.op));
  pickle.key("dtype").text(name_of(record.dtype));
  pickle.key("peer").number(record.peer).key("tag").text(std::to_string(record.tag));
  pickle.key("bytes").number(static_cast<std::int64_t>(larger * size_of(record.dtype)));
  pickle.key("finished_by").text(record.finished == 0 ? "" : record.by_caller ? "caller" : "engine");
  pickle.key("created").number(record.created).key("started").number(record.started);
  pickle.key("finished").number(record.finished).end_dictionary();
}

/// By socket: the peer's rank in the group, the index of the socket, and samples, oldest first.
void put_wires(Pickle& pickle, const Recorder& recorder) {
  pickle.key("wires").begin_list();
  for (const Wires::Wire& wire : wires_of(recorder)) {
    pickle.begin_dictionary().key("peer").number(wire.peer).key("flow").number(wire.flow);
    pickle.key("lost").boolean(wire.lost);
    pickle.key("samples").begin_list();
    for (const WireSample& sample : wire.samples) {
      pickle.begin_dictionary().key("at").number(sample.at);
      pickle.key("bytes").number(static_cast<std::int64_t>(sample.bytes));
      pickle.key("busy").number(static_cast<std::int64_t>(sample.busy));
      pickle.key("held").number(static_cast<std::int64_t>(sample.held));
      pickle.key("rate").number(static_cast<std::int64_t>(sample.rate));
      pickle.key("round_trip").number(sample.round_trip).key("resent").number(sample.resent).end_dictionary();
    }
    pickle.end_list().end_dictionary();
  }
  pickle.end_list();
}

void put_groups(Pickle& pickle, const std::vector<Section>& sections, const std::vector<Line>& lines) {
  pickle.key("pg_config").begin_dictionary();
  for (const Section& section : sections) {
    pickle.key(section.name).begin_dictionary().key("name").text(section.name).key("desc").text("undefined");
    pickle.key("ranks").text(list_of(section.recorder->identity().members)).end_dictionary();
  }
  pickle.end_dictionary().key("pg_status").begin_dictionary();
  for (std::size_t i = 0; i < sections.size(); ++i) {
    std::uint64_t started = 0, completed = 0;
    for (const Line& line : lines) {
      if (line.section != i) continue;
      if (line.record.started != 0) started = std::max(started, line.record.sequence);
      if (line.record.state == Recorder::State::completed) completed = std::max(completed, line.record.sequence);
    }
    pickle.key(std::to_string(i)).begin_dictionary();
    pickle.key("last_enqueued_collective").number(static_cast<std::int64_t>(sections[i].launched));
    pickle.key("last_started_collective").number(static_cast<std::int64_t>(started));
    pickle.key("last_completed_collective").number(static_cast<std::int64_t>(completed)).end_dictionary();
  }
  pickle.end_dictionary().key("groups").begin_list();
  for (const Section& section : sections) {
    const Recorder::Identity& identity = section.recorder->identity();
    pickle.begin_dictionary().key("name").text(section.name).key("rank").number(identity.rank);
    pickle.key("members").begin_list();
    for (const std::uint32_t member : identity.members) pickle.number(member);
    pickle.end_list().key("failure").text(section.recorder->failure());
    pickle.key("launched").number(static_cast<std::int64_t>(section.launched));
    pickle.key("unrecorded").number(static_cast<std::int64_t>(section.recorder->unrecorded()));
    pickle.key("clock_offset").number(section.recorder->clock_offset());
    put_wires(pickle, *section.recorder);
    pickle.end_dictionary();
  }
  pickle.end_list();
}

/// The sections of all groups, and all their records in order of time.
std::pair<std::vector<Section>, std::vector<Line>> read_all(const Recorders& recorders) {
  std::vector<Section> sections;
  std::vector<Line> lines;
  const std::vector<std::string> names = names_of(recorders);
  for (std::size_t i = 0; i < recorders.size(); ++i) {
    sections.push_back({recorders[i], Recorder::kNoPriority, names[i], recorders[i]->launched()});
  }
  for (std::size_t i = 0; i < recorders.size(); ++i) {
    for (Recorder::Record& record : recorders[i]->records()) {
      const auto same = [&](const Section& one) {
        return one.recorder == recorders[i] && one.priority == record.priority;
      };
      auto section = std::ranges::find_if(sections, same);
      if (section == sections.end()) {
        const std::string name = names[i] + " (" + std::string(kPriorityNames[record.priority]) + ")";
        section = sections.insert(section, {recorders[i], record.priority, name});
      }
      if (record.priority != Recorder::kNoPriority) section->launched = std::max(section->launched, record.sequence);
      lines.push_back({static_cast<std::size_t>(section - sections.begin()), std::move(record)});
    }
  }
  std::ranges::stable_sort(lines, {}, [](const Line& line) { return line.record.created; });
  return {std::move(sections), std::move(lines)};
}

void write(const std::filesystem::path& path, const std::string& content) {
  const std::filesystem::path beside =
      path.parent_path() / (".writing-" + std::to_string(::getpid()) + "-" + std::to_string(nanoseconds_now()));
  std::ofstream file(beside, std::ios::binary);
  file << content;
  file.close();
  if (!file || std::rename(beside.c_str(), path.c_str()) != 0) {
    const std::string sentence = system_sentence("cannot write " + path.string());
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw Error(Error::Kind::system, sentence);
  }
}

}  // namespace

Recorders all_recorders() {
  const std::lock_guard lock(registry().mutex);
  Recorders alive;
  for (const std::weak_ptr<Recorder>& candidate : registry().recorders) {
    if (auto recorder = candidate.lock()) alive.push_back(std::move(recorder));
  }
  return alive;
}

/// Sampled now, unless that was done a moment ago.
std::vector<Wires::Wire> wires_of(const Recorder& recorder) {
  std::vector<Wires::Wire> all;
  for (const std::shared_ptr<Wires>& wires : recorder.wires()) {
    wires->sample();
    std::ranges::move(wires->all(), std::back_inserter(all));
  }
  return all;
}

void enlist(const std::shared_ptr<Recorder>& recorder) {
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().recorders, [](const std::weak_ptr<Recorder>& old) { return old.expired(); });
  registry().recorders.push_back(recorder);
  if (at_end()) registry().kept.push_back(recorder);
  if (trace_folder().empty()) return;
  std::error_code fault;
  std::filesystem::create_directories(trace_folder(),
                                      fault);  // created at the start, for --now and to report errors early
  if (fault)
    log_always("SYNTONY_TRACE_DIR: cannot make the folder " + trace_folder().string() + ": " + fault.message());
}

std::string pickle_of(const Recorders& recorders) {
  const std::int64_t now = nanoseconds_now();
  const std::int64_t wall =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const auto [sections, lines] = read_all(recorders);
  std::int64_t collectives = 0;
  for (const Section& section : sections) collectives += static_cast<std::int64_t>(section.launched);
  std::string failure;
  for (const std::shared_ptr<Recorder>& recorder : recorders) {
    if (failure.empty()) failure = recorder->failure();
  }

  Pickle pickle;
  pickle.begin_dictionary().key("version").text("2.10").key("comm_lib_version").text("syntony");
  // Collectives are numbered from the back, so that ranks that have forgotten different numbers of them agree on the
  // rest.
  std::int64_t id = collectives - std::ranges::count_if(lines, [](const Line& line) { return !message(line.record); });
  for (const bool messages : {false, true}) {
    pickle.key(messages ? "messages" : "entries").begin_list();
    for (const Line& line : lines) {
      if (message(line.record) != messages) continue;
      const Section& section = sections[line.section];
      put_entry(pickle, line, *section.recorder, section.name, messages ? 0 : id++, wall - now);
    }
    pickle.end_list();
  }
  put_groups(pickle, sections, lines);
  pickle.key("rank").number(recorders.empty() ? 0 : recorders[0]->job_rank());
  pickle.key("process").number(::getpid()).key("host").text(host_name());
  pickle.key("monotonic").number(now).key("wall").number(wall).key("failure").text(failure);
  return pickle.end_dictionary().finish();
}

std::vector<std::filesystem::path> dump_records(const std::filesystem::path& folder) {
  std::map<std::uint32_t, Recorders> by_rank;
  for (const std::shared_ptr<Recorder>& recorder : all_recorders()) by_rank[recorder->job_rank()].push_back(recorder);
  std::error_code fault;
  std::filesystem::create_directories(folder, fault);
  if (fault) throw Error(Error::Kind::system, "cannot make the folder " + folder.string() + ": " + fault.message());
  std::vector<std::filesystem::path> paths;
  for (const auto& [rank, recorders] : by_rank) {
    paths.push_back(folder / ("syntony_rank_" + std::to_string(rank)));
    write(paths.back(), pickle_of(recorders));
  }
  return paths;
}

std::filesystem::path trace_folder() {
  const char* folder = std::getenv("SYNTONY_TRACE_DIR");
  return folder == nullptr ? "" : folder;
}

void dump_to_trace_folder() {
  try {
    for (const std::filesystem::path& path : dump_records(trace_folder())) {
      log(LogLevel::warn, [&] { return "the last operations of this rank are in " + path.string(); });
    }
  } catch (const std::exception& error) {
    log_always(std::string("cannot leave a record: ") + error.what());
  }
}

void dump_at_end() {
  if (at_end()) dump_to_trace_folder();
}

void dump_on_demand() {
  const auto asked = [] {
    struct stat file{};
    if (::stat((trace_folder() / "now").c_str(), &file) != 0) return std::int64_t{0};
    return static_cast<std::int64_t>(file.st_mtim.tv_sec) * 1'000'000'000 + file.st_mtim.tv_nsec;
  };
  static std::atomic<std::int64_t> answered{asked()};  // by the file's clock: the folder may be on another machine
  const std::int64_t when = asked();
  std::int64_t last = answered.load();
  if (when > last && answered.compare_exchange_strong(last, when)) dump_to_trace_folder();
}

void sample_wires() {
  for (const std::shared_ptr<Recorder>& recorder : all_recorders()) {
    for (const std::shared_ptr<Wires>& wires : recorder->wires()) wires->sample();
  }
}

}  // namespace syntony
