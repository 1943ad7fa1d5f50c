"""A file of every kind, made here or lying in data/."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np

from syntony.collectives.recorder import records
from syntony.overlap.formats.chakra import write_chakra
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.portfolio import Entry, Portfolio
from syntony.synth.engines.registry import engine_named
from syntony.synth.formats import portfolio_file, schedule_file
from syntony.synth.formats.msccl.xml_export import msccl_xml_text
from syntony.synth.lowering.lower import lower
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.target import CONVERSION
from syntony.topologies.parse import parse

DATA = Path(__file__).parent / "data"
SIZE = 1 << 26
KINDS = (
    "topology", "schedule", "two schedules", "program", "portfolio", "invalid schedule", "invalid program", "invalid",
    "bench results", "bench results of others", "training step", "training step, measured", "records of a job",
    "torch flight records", "NCCL log", "NCCL graph", "NCCL Inspector", "NCCL RAS",
)  # fmt: skip
"""What `write_all` writes."""
SELDOM = {"two schedules", "training step, measured", "bench results of others", "NCCL graph", "invalid schedule"}
"""Made by makers and drawn by panels that others of the list are made and drawn by, too."""

DEADLOCK = """<algo name="waits" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather"
  inplace="0" outofplace="1">
{gpus}</algo>
"""
_GPU = """  <gpu id="{mine}" i_chunks="1" o_chunks="2" s_chunks="0">
    <tb id="0" send="{peer}" recv="{peer}" chan="0">
      <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{peer}" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{mine}" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{mine}" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
"""


def synthesized(topology: str, kind: str, engine: str) -> Schedule:
    wires = parse(topology)
    return engine_named(engine).run(wires, Collective.make(kind, wires.ranks), SIZE, Budget(30))


def write_all(folder: Path) -> dict[str, list[str]]:
    """By kind, the arguments that name its files."""
    forest, greedy = synthesized("dgx1", "all_gather", "forest"), synthesized("dgx1", "all_gather", "greedy")
    schedule_file.write(forest, folder / "forest.json")
    schedule_file.write(greedy, folder / "greedy.json")
    portfolio_file.write(Portfolio((Entry(greedy, 1 << 16), Entry(forest, None))), folder / "portfolio.json")
    (folder / "greedy.xml").write_text(msccl_xml_text(lower(greedy, CONVERSION)))
    gpus = "".join(_GPU.format(mine=mine, peer=1 - mine) for mine in range(2))
    (folder / "deadlock.xml").write_text(DEADLOCK.format(gpus=gpus))
    schedule_file.write(_without_its_last(greedy), folder / "wrong.json")
    (folder / "broken.json").write_text('{"format": "syntony-schedule",\n "version": 1,\n "topology": oops\n}\n')
    (folder / "bench.json").write_text(json.dumps(bench()))
    write_steps(folder)
    write_records(folder / "job")
    for rank in range(3):
        (folder / f"trace_rank_{rank}").write_bytes(pickle.dumps(flight_record(rank), protocol=2))

    def at(*names: str) -> list[str]:
        return [str(folder / name) for name in names]

    return {
        "topology": ["torus:3x3"],
        "schedule": at("forest.json"),
        "two schedules": at("forest.json", "greedy.json"),
        "program": at("greedy.xml"),
        "portfolio": at("portfolio.json"),
        "invalid schedule": at("wrong.json"),
        "invalid program": at("deadlock.xml"),
        "invalid": at("broken.json"),
        "bench results": at("bench.json"),
        "bench results of others": [str(DATA / "nccl-tests.txt"), str(DATA / "osu.txt")],
        "training step": at("fifo.json", "need.json"),
        "training step, measured": at("step.0.et"),
        "records of a job": at("job"),
        "torch flight records": at(*(f"trace_rank_{rank}" for rank in range(3))),
        "NCCL log": [str(DATA / "nccl.log")],
        "NCCL graph": [str(DATA / "graph.xml")],
        "NCCL Inspector": [str(DATA / "inspector.json")],
        "NCCL RAS": [str(DATA / "ras.json")],
    }


def _without_its_last(schedule: Schedule) -> Schedule:
    moved = schedule.transfers
    return replace(schedule, transfers=Transfers.of(moved.rows()[:-1]), symmetry=())


def bench() -> dict[str, object]:
    """A record as `syntony bench -J` writes it."""

    def form(time: float, size: int) -> dict[str, object]:
        band = size / time / 1e3
        return {"time": time, "alg_bw": band, "bus_bw": band, "nwrong": 0, "p50_us": time, "p99_us": 2 * time,
                "least_us": 0.8 * time, "most_us": 3 * time}  # fmt: skip

    rows = []
    for size in (1024, 65536, 4194304):
        took = 5 + size / 5e3
        peers = [{"name": name, "out_of_place": form(took * slower, size), "in_place": None}
                 for name, slower in (("gloo", 4.0), ("mpich", 1.5), ("impi", 1.2))]  # fmt: skip
        rows.append({"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": -1,
                     "out_of_place": form(took, size), "in_place": form(took, size), "experiment_name": "auto",
                     "peers": peers})  # fmt: skip
    devices = [{"rank": rank, "hostname": "node01"} for rank in range(2)]
    return {"version": 3, "collective": "all_reduce", "nccl_version": "syntony 0.2", "results": rows,
            "notes": ["quiet"], "config": {"iterations": 20, "devices": devices}}  # fmt: skip


def write_steps(folder: Path) -> None:
    """Two policies for a step of 1F1B, and a trace of it."""
    layout = Layout(pp=2, dp=2, microbatches=4)
    graph = generate(layers_of(model_named("thin"), layout, Form(1, 4)), layout)
    cost = Cost(80e9, {lane: ring_wire(count, 2e8, 1e-4) for lane, count in graph.groups.items()}, 1e-9)
    for policy in ("fifo", "need"):
        plan = planned(chain_of(policy), graph, cost)
        plan.write(folder / f"{policy}.json")
    ends = np.cumsum(np.full(len(plan.graph), 1e-3))
    write_chakra(
        plan, folder / "step.et", {op.key: (end - 1e-3, end) for op, end in zip(plan.graph, ends, strict=True)}
    )


def write_records(folder: Path) -> None:
    """Our dumps of two of three ranks: rank 1 left none, rank 2 is one operation behind."""
    folder.mkdir()
    for rank, last in ((0, 3), (2, 2)):
        entries = []
        for sequence in range(1, last + 1):
            begin = 1_000_000_000 + sequence * 1_000_000 + rank * 1000
            open_ = sequence == last
            entries.append(
                {
                    "process_group": ("world", ""), "collective_seq_id": sequence, "collective": "all_reduce",
                    "dtype": "float32", "op": "sum", "algorithm": "ring", "peer": 0, "tag": 0, "input_sizes": [[64]],
                    "output_sizes": [[64]], "bytes": 256, "progress": "started" if open_ else "completed",
                    "finished_by": "caller", "created": begin, "started": begin + 1000,
                    "finished": 0 if open_ else begin + 500_000,
                }
            )  # fmt: skip
        group = {"name": "world", "rank": rank, "members": [0, 1, 2], "launched": last, "unrecorded": 0, "failure": "",
                 "clock_offset": 0}  # fmt: skip
        dump = {"rank": rank, "host": "node01", "process": 100 + rank, "monotonic": 1_010_000_000, "wall": 10**18,
                "groups": [group], "entries": entries, "messages": []}  # fmt: skip
        (folder / f"syntony_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    assert len(records.read_folder(folder)) == 2


def flight_record(rank: int) -> dict[str, object]:
    """As torch's flight recorder pickles it: rank 2 has not come to operation 3."""
    entries = []
    for sequence in range(1, 4 if rank < 2 else 3):
        created, done = 1_790_000_000_000_000_000 + sequence * 5_000_000 + rank * 300_000, sequence < 3
        entries.append(
            {
                "frames": [{"name": "step", "filename": "/app/train.py", "line": 41}], "record_id": sequence - 1,
                "process_group": ("0", "default_pg"), "collective_seq_id": sequence, "p2p_seq_id": 0, "op_id": sequence,
                "profiling_name": "nccl:all_reduce", "time_created_ns": created, "input_sizes": [[1024]],
                "input_dtypes": ["Float"], "state": "completed" if done else "started",
                "time_discovered_started_ns": created + 100_000,
                "time_discovered_completed_ns": created + 4_000_000 if done else None, "is_p2p": False,
            }
        )  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
