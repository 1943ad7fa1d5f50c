// Writes the recorders' contents to files: one pickle per rank of the job with all its groups, in the form that torch's
// analyzer reads (`torchfrtrace`, version 2.10 of torch's flight recorder), and the counters as Prometheus text.
//
//     SYNTONY_TRACE_DIR     the folder, created when the first group forms. Every rank whose group fails leaves a dump
//                           there, and so does every rank within a second after the file `now` in it was touched
//                           (`syntony trace DIR --now`)
//     SYNTONY_TRACE_AT_END  1: ranks of a successful run also dump, when they shut their groups down
//     SYNTONY_TRACE_ENTRIES operations remembered per group, default 2000; 0 turns recording and counting off
//
// torch's `entries` hold only collectives, because its analyzer pairs up what all ranks of a group do. Messages are in
// `messages`, in the same form. The analyzer accepts only a fixed list of libraries, so operations are called
// "gloo:all_reduce"; fields beyond torch's are added beside them (collectives/recorder/records.py reads all).
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

/// From now on the process's dumps and counters include `recorder`, as long as it exists.
void enlist(const std::shared_ptr<Recorder>& recorder);

/// The recorders of all existing groups.
[[nodiscard]] Recorders all_recorders();
/// The wires of a group's transports, sampled now unless they were a moment ago.
[[nodiscard]] std::vector<Wires::Wire> wires_of(const Recorder& recorder);

/// The pickle of one rank of the job, from `recorders`, which all belong to that rank.
[[nodiscard]] std::string pickle_of(const Recorders& recorders);

/// Writes `syntony_rank_<number>` for each rank of the job in this process; returns the paths. Throws Error(system)
/// naming the file that cannot be written; an older one is then left intact.
std::vector<std::filesystem::path> dump_records(const std::filesystem::path& folder);

/// SYNTONY_TRACE_DIR, or empty.
[[nodiscard]] std::filesystem::path trace_folder();
/// Dumps to trace_folder(), and reports failures on stderr instead of throwing them.
void dump_to_trace_folder();
/// The same if SYNTONY_TRACE_AT_END is set; called when a group has been shut down without failure.
void dump_at_end();
/// The same if somebody has touched the file `now` there since the last call. The first call never dumps.
void dump_on_demand();
inline constexpr std::chrono::milliseconds kDemandInterval{500};
/// Samples the wires of all groups of this process from the kernel.
void sample_wires();

/// Prometheus text format 0.0.4, by group, rank and collective.
[[nodiscard]] std::string counters_text(const Recorders& recorders);
/// The same for all groups of this process.
[[nodiscard]] std::string counters_text();

}  // namespace syntony
