// What recorders know, as files: one pickle per rank of the job, all its groups in it, in the form that torch's
// analyzer reads (`torchfrtrace`, version 2.10 of torch's flight recorder), and the counters as Prometheus text.
//
//      SYNTONY_TRACE_DIR     the folder, made when the first group forms. Every rank whose group fails leaves its dump
//                            there, and so does every rank within a second after somebody has touched the file `now`
//                            in it (`syntony trace DIR --now`)
//      SYNTONY_TRACE_AT_END  1: so does every rank of a run that goes well, when it shuts its groups down
//      SYNTONY_TRACE_ENTRIES operations remembered per group, default 2000; 0 turns recording and counting off
//
// torch's `entries` have the collectives only: its analyzer pairs up what all ranks of a group do. Messages are in
// `messages`, in the same form. Its analyzer also accepts a fixed list of libraries, so operations are called
// "gloo:all_reduce"; what is ours beyond torch's fields stands beside them (collectives/recorder/records.py reads all).
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/recorder/recorder.hpp"
#include "core/recorder/wires.hpp"

namespace syntony {

using Recorders = std::vector<std::shared_ptr<Recorder>>;

/// From now on the process's dumps and counters contain `recorder`, as long as it lives.
void enlist(const std::shared_ptr<Recorder>& recorder);

/// The recorders of all groups that live.
[[nodiscard]] Recorders all_recorders();
/// The wires of a group's transports, asked now unless they have been a moment ago.
[[nodiscard]] std::vector<Wires::Wire> wires_of(const Recorder& recorder);

/// The pickle of one rank of the job: what `recorders`, all of that rank, know.
[[nodiscard]] std::string pickle_of(const Recorders& recorders);

/// Writes `syntony_rank_<number>` for each rank of the job that lives in this process; returns the paths.
/// Throws Error(system) naming the file that cannot be written; an older one then stays whole.
std::vector<std::filesystem::path> dump_records(const std::filesystem::path& folder);

/// SYNTONY_TRACE_DIR, or empty.
[[nodiscard]] std::filesystem::path trace_folder();
/// Dumps to trace_folder(), and tells failures on stderr instead of throwing them.
void dump_to_trace_folder();
/// Does that where SYNTONY_TRACE_AT_END wants it, when a group has been shut down in peace.
void dump_at_end();
/// Does that if somebody has touched the file `now` there since the last call. The first call only looks.
void dump_on_demand();
inline constexpr std::chrono::milliseconds kDemandInterval{500};
/// Asks the kernel about the wires of all groups of this process.
void sample_wires();

/// Prometheus text format 0.0.4, by group, rank and collective.
[[nodiscard]] std::string counters_text(const Recorders& recorders);
/// Of all groups of this process.
[[nodiscard]] std::string counters_text();

}  // namespace syntony
