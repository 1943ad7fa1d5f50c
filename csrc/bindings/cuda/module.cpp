// syntony._cuda: the CUDA executor as Python sees it. Addresses and streams are integers, so it is at home with cupy,
// torch and ctypes alike. Programs are those of syntony._core.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "cuda/executor.hpp"
#include "cuda/pull.hpp"
#include "cuda/switches/nvls.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony::cuda {
namespace {

constexpr std::string_view kProtocolNames[] = {"simple", "ll", "ll128"};

template <class Names>
std::size_t find_name(const Names& names, std::string_view name, std::string_view what) {
  const auto at = std::ranges::find(names, name);
  if (at != std::ranges::end(names)) return static_cast<std::size_t>(at - std::ranges::begin(names));
  throw std::invalid_argument("there is no " + std::string(what) + " '" + std::string(name) + "'");
}

DType dtype_named(std::string_view name) {
  const auto at = std::ranges::find(kDTypes, name, &DTypeTraits::name);
  if (at == kDTypes.end()) throw std::invalid_argument("there is no dtype '" + std::string(name) + "'");
  return static_cast<DType>(at - kDTypes.begin());
}

std::byte* pointer(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }
std::uintptr_t address(const std::byte* memory) { return reinterpret_cast<std::uintptr_t>(memory); }
cudaStream_t stream_at(std::uintptr_t handle) { return reinterpret_cast<cudaStream_t>(handle); }

std::vector<std::byte*> pointers(const std::vector<std::uintptr_t>& addresses) {
  std::vector<std::byte*> all;
  for (const std::uintptr_t each : addresses) all.push_back(pointer(each));
  return all;
}

LoweringOptions options_of(std::string_view protocol, std::uint32_t blocks, std::uint32_t instances, bool bulk) {
  return {static_cast<Protocol>(find_name(kProtocolNames, protocol, "protocol")), blocks, bulk, instances};
}

using BaseRow = std::tuple<std::uint32_t, int, std::uint32_t>;  // rank, space, block

std::vector<BaseRow> bases_of(const KernelForm& form) {
  std::vector<BaseRow> rows;
  for (const Base& base : form.bases) rows.emplace_back(base.rank, static_cast<int>(base.space), base.block);
  return rows;
}

nb::object told(const std::optional<Trouble>& found) {
  if (!found) return nb::none();
  nb::dict trouble;
  trouble["kind"] = found->kind == Trouble::aborted ? "aborted" : "timed out";
  trouble["launch"] = found->launch;
  trouble["lane"] = found->lane;
  trouble["instruction"] = found->instruction;
  trouble["slice"] = found->slice;
  trouble["peer"] = found->peer == kNone ? nb::object(nb::none()) : nb::cast(found->peer);
  return trouble;
}

void bind_objects(nb::module_& m) {
  nb::class_<DeviceMemory>(m, "Memory",
                           "Zeroed memory of a GPU, from cudaMalloc. Reads and writes return when the bytes are there.")
      .def(nb::init<int, std::size_t>(), "device"_a, "bytes"_a)
      .def_prop_ro("address", [](const DeviceMemory& self) { return address(self.data()); })
      .def("__len__", &DeviceMemory::size)
      .def(
          "write",
          [](DeviceMemory& self, const nb::bytes& bytes, std::size_t offset) {
            const std::span given(reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size());
            const nb::gil_scoped_release others_may_run;
            self.write(given, offset);
          },
          "bytes"_a, "offset"_a = 0)
      .def(
          "read",
          [](const DeviceMemory& self, std::size_t bytes, std::size_t offset) {
            std::vector<std::byte> to(bytes);
            {
              const nb::gil_scoped_release others_may_run;
              self.read(to, offset);
            }
            return nb::bytes(to.data(), to.size());
          },
          "bytes"_a, "offset"_a = 0)
      .def(
          "copy_from",
          [](DeviceMemory& self, const DeviceMemory& other, const Stream& stream) {
            self.copy_from(other, stream.handle());
          },
          "other"_a, "stream"_a, "CUDA's own copy of all bytes of `other`, which has as many, in the stream.");
  nb::class_<MappedMemory>(m, "PinnedMemory", "Zeroed memory of the host that a GPU's copies read and write directly.")
      .def(nb::init<std::size_t>(), "bytes"_a)
      .def_prop_ro("address", [](const MappedMemory& self) { return reinterpret_cast<std::uintptr_t>(self.data()); });
  m.def(
      "copy",
      [](int device, std::uintptr_t to, std::uintptr_t from, std::size_t bytes, std::uintptr_t stream) {
        copy(device, pointer(to), pointer(from), bytes, stream_at(stream));
      },
      "device"_a, "to"_a, "from_"_a, "bytes"_a, "stream"_a, "Copies between memories of GPU and host, in the stream.");
  m.def(
      "capturing",
      [](int device, std::uintptr_t stream) {
        const OnDevice here(device);
        return is_capturing(stream_at(stream));
      },
      "device"_a, "stream"_a, "Whether the stream is being captured into a graph instead of being run.");
  nb::class_<ImportedMemory>(m, "ImportedMemory",
                             "Another process's device memory; its address is valid while this object lives.")
      .def(
          "__init__",
          [](ImportedMemory* self, int device, const nb::bytes& exported) {
            new (self) ImportedMemory(device, {exported.c_str(), exported.size()});
          },
          "device"_a, "exported"_a)
      .def_prop_ro("address", [](const ImportedMemory& self) { return address(self.data()); });
  m.def(
      "export_memory",
      [](std::uintptr_t at) {
        const std::string exported = export_memory(pointer(at));
        return nb::bytes(exported.data(), exported.size());
      },
      "address"_a, "A handle to this device memory for ImportedMemory in another process on this host (CUDA IPC).");
  nb::class_<Graph>(m, "Graph", "A captured stream.")
      .def(
          "launch", [](Graph& self, const Stream& stream) { self.launch(stream.handle()); }, "stream"_a,
          nb::call_guard<nb::gil_scoped_release>());
  nb::class_<Stream>(m, "Stream", "A stream of a GPU that waits for no other.")
      .def(nb::init<int>(), "device"_a)
      .def_prop_ro("handle", [](const Stream& self) { return reinterpret_cast<std::uintptr_t>(self.handle()); })
      .def("synchronize", &Stream::synchronize, nb::call_guard<nb::gil_scoped_release>())
      .def("wait_for", &Stream::wait_for, "other"_a,
           "Work from here on waits for what `other` holds now; a capture of `other` spreads to this stream.")
      .def("begin_capture", &Stream::begin_capture)
      .def("end_capture", &Stream::end_capture);
  nb::class_<Event>(m, "Event", "A point in a stream, with its time.")
      .def(nb::init<int>(), "device"_a)
      .def(
          "record", [](Event& self, std::uintptr_t stream) { self.record(stream_at(stream)); }, "stream"_a)
      .def(
          "precede", [](const Event& self, std::uintptr_t stream) { self.precede(stream_at(stream)); }, "stream"_a,
          "Work that the stream gets from here on waits for what was recorded last, if anything was.")
      .def_prop_ro("done", &Event::done,
                   "Whether all that was recorded has ended, with an error or without; synchronize() raises the error.")
      .def("synchronize", &Event::synchronize, nb::call_guard<nb::gil_scoped_release>())
      .def("seconds_since", &Event::seconds_since, "earlier"_a);
}

void bind_executor(nb::module_& m) {
  nb::class_<ArenaShape>(m, "ArenaShape", "The FIFOs between the ranks of a group; all ranks have the same.")
      .def(
          "__init__",
          [](ArenaShape* self, std::uint32_t ranks, std::uint32_t channels, std::uint32_t depth,
             std::uint32_t slot_bytes,
             std::uint32_t line_bytes) { new (self) ArenaShape{ranks, channels, depth, slot_bytes, line_bytes}; },
          "ranks"_a, "channels"_a = ArenaShape{}.channels, "depth"_a = ArenaShape{}.depth,
          "slot_bytes"_a = ArenaShape{}.slot_bytes, "line_bytes"_a = ArenaShape{}.line_bytes)
      .def_ro("ranks", &ArenaShape::ranks)
      .def_ro("channels", &ArenaShape::channels)
      .def_prop_ro("bytes", [](const ArenaShape& self) { return arena_bytes(self); }, "Of one rank's arena.");
  nb::class_<Executor>(
      m, "Executor",
      "One rank's side of a group of GPUs. `ranks_on_device` of them share the GPU and run on it at the same time.")
      .def(nb::init<int, std::uint32_t, const ArenaShape&, std::uint32_t>(), "device"_a, "rank"_a, "shape"_a,
           "ranks_on_device"_a = 1)
      .def_prop_ro(
          "arena", [](const Executor& self) { return address(self.arena()); }, "The address of what peers write.")
      .def_prop_ro("blocks", &Executor::blocks,
                   "Thread blocks of this rank that fit on the GPU beside those of the other ranks there.")
      .def(
          "connect", [](Executor& self, const std::vector<std::uintptr_t>& arenas) { self.connect(pointers(arenas)); },
          "arenas"_a, "Every rank's arena, by rank: its address in this process.")
      .def(
          "set_timeout",
          [](Executor& self, double seconds) {
            self.set_timeout(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
          },
          "seconds"_a, "Deadline of every launch from here on; 0: none.")
      .def(
          "launch",
          [](Executor& self, const LaunchPlan& plan, const std::vector<std::uintptr_t>& addresses,
             std::uintptr_t stream) { self.launch(plan, pointers(addresses), stream_at(stream)); },
          nb::call_guard<nb::gil_scoped_release>(),  // a full queue waits, and what it waits for may need a rank's
                                                     // thread
          "plan"_a, "pointers"_a, "stream"_a,
          "One kernel and nothing else, so that it can be captured. `pointers` as plan.bases; 0 for this rank's "
          "scratch\n"
          "means the plan's. All ranks launch the same plans in the same order.")
      .def("wait", &Executor::wait, nb::call_guard<nb::gil_scoped_release>(),
           "Waits until all launches have ended; those of graphs are not known here.")
      .def("abort", &Executor::abort, "Lanes stop where they are; the group must be made anew.")
      .def(
          "trouble", [](const Executor& self) { return told(self.trouble()); },
          nb::sig("def trouble(self) -> Trouble | None"),
          "Why a launch ended early, and which peer it waited for; None if none did.");
  nb::class_<LaunchPlan>(
      m, "Plan",
      "A lowered Program on a GPU: made once, launched often. Keep it for as long as launches or graphs use it.\n\n"
      "elements   of each block\n"
      "blocks     thread blocks; 0: all that the executor has\n"
      "instances  how many times the Program runs at once, each on its share of every chunk; 0: as many\n"
      "           as pay; else the same on all ranks\n"
      "bulk       copies by the copy engine of Hopper and later. ValueError elsewhere, or with another\n"
      "           protocol than simple")
      .def(
          "__init__",
          [](LaunchPlan* self, const Executor& executor, std::shared_ptr<Program> program, std::string_view dtype,
             std::string_view op, const std::vector<std::size_t>& elements, std::string_view protocol,
             std::uint32_t blocks, std::uint32_t instances, bool bulk) {
            new (self) LaunchPlan(executor, PreparedProgram(std::move(program)), dtype_named(dtype),
                                  static_cast<ReduceOp>(find_name(kReduceOps, op, "operator")), elements,
                                  options_of(protocol, blocks, instances, bulk));
          },
          "executor"_a, "program"_a, "dtype"_a, "op"_a, "elements"_a, "protocol"_a = "simple", "blocks"_a = 0,
          "instances"_a = 0, "bulk"_a = false)
      .def_prop_ro(
          "bases", [](const LaunchPlan& self) { return bases_of(self.form()); },
          "The pointers that a launch must bring: (rank, space, block); space 0 input, 1 output, 2 scratch.")
      .def_prop_ro(
          "scratch", [](const LaunchPlan& self) { return address(self.scratch()); },
          "The address of this rank's scratch; 0 when it needs none.")
      .def_prop_ro("lanes", [](const LaunchPlan& self) { return self.form().lanes.size(); })
      .def_prop_ro("blocks", [](const LaunchPlan& self) { return self.form().blocks; })
      .def_prop_ro("slices", [](const LaunchPlan& self) { return self.form().slices; })
      .def_prop_ro("instances", [](const LaunchPlan& self) { return self.form().instances; });
}

void bind_switches(nb::module_& m) {
  nb::class_<NvlsShape>(m, "SwitchedShape",
                        "Staging slots and flags of a group behind NVLink switches; all ranks have the same.")
      .def(
          "__init__",
          [](NvlsShape* self, std::uint32_t ranks, std::uint32_t blocks, std::uint32_t slot_bytes) {
            new (self) NvlsShape{ranks, blocks, slot_bytes};
          },
          "ranks"_a, "blocks"_a = NvlsShape{}.blocks, "slot_bytes"_a = NvlsShape{}.slot_bytes)
      .def_prop_ro("bytes", [](const NvlsShape& self) { return nvls_bytes(self); }, "Of one rank's multicast memory.");
  nb::class_<Multicast>(
      m, "Multicast",
      "Memory of several GPUs behind one address. Rank 0 makes it, the others open what it exports; all join,\n"
      "then all bind. ValueError where the GPU cannot join one.")
      .def(nb::init<int, std::uint32_t, std::size_t>(), "device"_a, "ranks"_a, "bytes"_a)
      .def(
          "__init__",
          [](Multicast* self, int device, std::uint32_t ranks, std::size_t bytes, const nb::bytes& exported) {
            new (self) Multicast(device, ranks, bytes, {exported.c_str(), exported.size()});
          },
          "device"_a, "ranks"_a, "bytes"_a, "exported"_a)
      .def(
          "exported",
          [](const Multicast& self) {
            const std::string exported = self.exported();
            return nb::bytes(exported.data(), exported.size());
          },
          "A handle for the constructor in another process on this host.")
      .def("join", &Multicast::join)
      .def("bind", &Multicast::bind);
  nb::class_<SwitchedGroup>(m, "SwitchedGroup",
                            "One rank's side of all_reduce, all_gather and reduce_scatter through NVLink switches.")
      .def(nb::init<const Multicast&, std::uint32_t, const NvlsShape&>(), "memory"_a, "rank"_a, "shape"_a,
           nb::keep_alive<1, 2>())
      .def(
          "launch",
          [](SwitchedGroup& self, std::string_view collective, std::string_view dtype, std::string_view op,
             std::uintptr_t input, std::uintptr_t output, std::size_t elements, std::uintptr_t stream) {
            self.launch(collective_named(collective), dtype_named(dtype),
                        static_cast<ReduceOp>(find_name(kReduceOps, op, "operator")), pointer(input), pointer(output),
                        elements, stream_at(stream));
          },
          nb::call_guard<nb::gil_scoped_release>(), "collective"_a, "dtype"_a, "op"_a, "input"_a, "output"_a,
          "elements"_a, "stream"_a,
          "`elements` of one block of the collective. All ranks launch the same, in the same order.")
      .def(
          "set_timeout",
          [](SwitchedGroup& self, double seconds) {
            self.set_timeout(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
          },
          "seconds"_a, "Deadline of every launch from here on; 0: none.")
      .def("abort", &SwitchedGroup::abort, "It stops where it is; the group must be made anew.")
      .def(
          "trouble", [](const SwitchedGroup& self) { return told(self.trouble()); },
          nb::sig("def trouble(self) -> Trouble | None"),
          "As Executor.trouble; `lane`: thread block, `instruction`: 0 staging filled, 1 summed, 2 done.");
}

}  // namespace
}  // namespace syntony::cuda

NB_MODULE(_cuda, m) {
  using namespace syntony::cuda;
  m.doc() =
      "The CUDA executor: Programs on GPUs. Built where there is nvcc; importable without a GPU or a driver.\n\n"
      "Addresses and streams are integers, as cupy, torch and ctypes give them. All errors of CUDA are RuntimeError.";
  nb::module_::import_("syntony._core");  // Program is bound there
  m.attr("PROTOCOLS") = nb::make_tuple("simple", "ll", "ll128");
  m.def("device_count", &device_count, "GPUs that this process can use; 0 where there is no driver.");
  m.def(
      "describe",
      [](int device) {
        const DeviceFacts found = describe(device);
        nb::dict facts;
        facts["name"] = found.name;
        facts["pci"] = found.pci;
        facts["architecture"] = std::to_string(found.major) + "." + std::to_string(found.minor);
        facts["processors"] = found.processors;
        facts["memory"] = found.memory;
        facts["multicast"] = found.multicast;
        facts["driver"] = found.driver;
        facts["runtime"] = found.runtime;
        return facts;
      },
      "device"_a, nb::sig("def describe(device: int) -> Facts"),
      "Facts of a GPU for reports: architecture as \"9.0\", memory in bytes, versions of CUDA as 13000 for 13.0.");
  m.def("use", &use, "device"_a, "Makes the GPU the calling thread's current device, for libraries that ask for it.");
  m.def(
      "pull",
      [](std::string_view collective, std::uint32_t ranks, std::uint32_t root) {
        return std::make_shared<syntony::Program>(pull(syntony::collective_named(collective), ranks, root));
      },
      "collective"_a, "ranks"_a, "root"_a = 0,
      "Direct exchange through peer memory: each rank reads what it must end with. all_reduce: one shot.");
  m.def(
      "pull_two_shot", [](std::uint32_t ranks) { return std::make_shared<syntony::Program>(pull_two_shot(ranks)); },
      "ranks"_a, "all_reduce: rank c sums share c of what all ranks have, and writes the sum to every rank's output.");
  m.def(
      "lowered",
      [](std::shared_ptr<syntony::Program> program, std::uint32_t rank, std::string_view dtype, std::string_view op,
         const std::vector<std::size_t>& elements, const ArenaShape& shape, std::string_view protocol,
         std::uint32_t blocks, std::uint32_t instances, bool bulk) {
        const KernelForm form = lower(syntony::PreparedProgram(std::move(program)), rank, dtype_named(dtype),
                                      static_cast<syntony::ReduceOp>(find_name(syntony::kReduceOps, op, "operator")),
                                      elements, shape, options_of(protocol, blocks, instances, bulk));
        nb::dict facts;
        facts["bases"] = bases_of(form);
        facts["scratch_bytes"] = form.scratch_bytes;
        facts["lanes"] = form.lanes.size();
        facts["instructions"] = form.instructions.size();
        facts["blocks"] = form.blocks;
        facts["slices"] = form.slices;
        facts["instances"] = form.instances;
        return facts;
      },
      "program"_a, "rank"_a, "dtype"_a, "op"_a, "elements"_a, "shape"_a, "protocol"_a = "simple", "blocks"_a = 1,
      "instances"_a = 0, "bulk"_a = false,
      nb::sig("def lowered(program: syntony._core.Program, rank: int, dtype: str, op: str, elements: "
              "collections.abc.Sequence[int], shape: ArenaShape, protocol: str = 'simple', blocks: int = 1, instances: "
              "int = 0, bulk: bool = False) -> Lowered"),
      "The Plan that would be made, without a GPU. ValueError where there could be none.");
  m.def(
      "check_switched",
      [](std::string_view collective, std::string_view dtype, std::string_view op, const NvlsShape& shape) {
        static_cast<void>(switched(shape, 0, syntony::collective_named(collective), dtype_named(dtype),
                                   static_cast<syntony::ReduceOp>(find_name(syntony::kReduceOps, op, "operator")), 1));
      },
      "collective"_a, "dtype"_a, "op"_a, "shape"_a, "Raises ValueError where switches cannot do it.");
  bind_objects(m);
  bind_executor(m);
  bind_switches(m);
}
