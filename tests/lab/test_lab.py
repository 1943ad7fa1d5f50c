"""The lab for real: namespaces, wires, ranks. Needs root, iproute2 and a kernel that lets us; skips with the reason."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.lab import processes, runs
from syntony.lab.aggregators import adding_switches
from syntony.lab.faults import parse_fault
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError, LabSpec, at_rate, delayed, spec_of
from syntony.lab.wires import kernel
from syntony.topologies.parse import parse

pytestmark = pytest.mark.wires
RATE = Fraction(50 * 10**6, 8)
SYNTONY = [sys.executable, "-m", "syntony"]


def spec(name: str) -> LabSpec:
    return at_rate(spec_of(parse(name)), RATE)


@pytest.fixture(scope="module", autouse=True)
def needs_a_kernel_that_lets_us() -> None:
    """By trying: containers differ in what they allow."""
    try:
        with Lab(spec("star:2")) as lab:
            lab.run(["true"], write=lambda _: None)
    except UserError as error:
        pytest.skip(f"no lab here: {error}")


def traces() -> tuple[list[str], list[str]]:
    """All that a lab could leave on this machine: devices, and labs that nobody runs, or that this process does."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    others = {record.id for record, alive in runs.records() if alive and record.process != os.getpid()}
    left = [record.id for record, _ in runs.records() if record.id not in others]
    return sorted(line.split(":")[1] for line in links.splitlines()), left


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    links, labs = traces()
    yield
    links_now, labs_now = traces()
    # Not that they are equal: of a lab that was killed, the kernel may take the last devices away only meanwhile.
    assert set(links_now) <= set(links)
    assert set(labs_now) <= set(labs)


def run(name: str | LabSpec, script: str, **more: object) -> tuple[int, list[str]]:
    """Runs a shell script on every rank; the exit code, and the lines in alphabetical order."""
    written: list[bytes] = []
    with Lab(spec(name) if isinstance(name, str) else name) as lab:
        code = lab.run(["sh", "-c", script], write=written.append, **more)  # type: ignore[arg-type]
    return code, sorted(line.strip() for line in b"".join(written).decode().splitlines())


def eventually(attempt: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not attempt():
        assert time.monotonic() < deadline, f"waited 30 s in vain: {what}"
        time.sleep(0.02)


# ---- ranks -----------------------------------------------------------------------------------------------------------


def test_ranks_know_who_and_where_they_are() -> None:
    script = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $SYNTONY_HOST $TELL"
    environment = {**os.environ, "TELL": "told", "OMPI_COMM_WORLD_RANK": "7"}
    code, lines = run("rail:boxes=2,gpus=2,rails=2", script, environment=environment)
    assert code == 0
    assert lines == [
        "rank 0 | 0/4 0/2 198.18.0.1:29500 h0 told",
        "rank 1 | 1/4 1/2 198.18.0.1:29500 h0 told",
        "rank 2 | 2/4 0/2 198.18.0.1:29500 h1 told",
        "rank 3 | 3/4 1/2 198.18.0.1:29500 h1 told",
    ]


def test_both_streams_have_prefixes_and_unfinished_lines_are_not_lost() -> None:
    code, lines = run("star:2", "echo out; echo err >&2; printf 'no newline'")
    assert code == 0
    assert lines == [f"rank {rank} | {text}" for rank in range(2) for text in ("err", "no newline", "out")]


def test_the_first_failure_is_the_exit_code_and_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syntony.lab.processes.GRACE", 0.2)
    code, lines = run("star:3", "[ $RANK = 1 ] && exit 7; sleep 1000; exit 3")
    assert code == 7
    assert lines == ["rank 1 | (lab) ended with exit code 7; the others have 0.2 s to end, too"]


def test_a_killed_rank_has_the_shells_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syntony.lab.processes.GRACE", 0.2)
    assert run("star:2", "[ $RANK = 0 ] && kill -KILL $$; sleep 1000")[0] == 128 + signal.SIGKILL


def test_a_command_that_is_not_there_is_refused() -> None:
    with Lab(spec("star:2")) as lab, pytest.raises(LabError, match=r"^there is no command 'no-such-thing' to run$"):
        lab.run(["no-such-thing"])


def test_processes_that_ranks_leave_behind_end_with_the_lab() -> None:
    code, lines = run("star:2", "setsid sleep 1000 >/dev/null 2>&1 & echo $!")
    assert code == 0
    for line in lines:
        process = int(line.rpartition(" ")[2])
        eventually(lambda process=process: not Path(f"/proc/{process}").exists(), f"process {process} ends")  # type: ignore[misc]


# ---- wires -----------------------------------------------------------------------------------------------------------

KNOCK = """
import os, socket, subprocess, sys
def reachable(address):
    "Whether the host answers at all: with a refusal, as nobody listens."
    try:
        socket.create_connection((address, 9), 3).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
"""


def python(body: str) -> str:
    """A shell command that runs `body` on rank 0."""
    return f"[ $RANK = 0 ] || exit 0; exec timeout 30 {sys.executable} -c '{KNOCK}{body}'"


@pytest.mark.parametrize("name", ["torus:2x2", "rail:boxes=2,gpus=1,rails=2", "ring:4", "dgx-a100:2"])
def test_every_address_can_be_reached(name: str) -> None:
    addresses = [port.address for host in spec(name).hosts for port in host.ports]
    body = f"print([address for address in {addresses} if not reachable(address)])".replace("'", '"')
    assert run(name, python(body)) == (0, ["rank 0 | []"])


def test_ecmp_routes_are_taken() -> None:
    written: list[bytes] = []
    with Lab(spec("torus:2x2"), ecmp=True) as lab:
        body = 'print(reachable("198.18.0.4"))'
        assert lab.run(["sh", "-c", python(body)], write=written.append) == 0
        routes = kernel.run(["ip", "-n", lab.namespace("h0"), "route", "show", "198.18.0.4"])
    assert written == [b"rank 0 | True\n"]
    assert routes.count("nexthop") == 2


def test_ceilings_are_near_the_rates() -> None:
    with Lab(spec("star:2")) as lab:
        ceilings = lab.ceilings()
    assert len(ceilings) == 4
    for ceiling in ceilings:
        assert 0.5 * float(RATE) < ceiling.best < 1.1 * float(RATE)


def test_wires_take_their_time_and_lose_nothing() -> None:
    pytest.importorskip("syntony._core")
    slow = delayed(spec("star:2"), 0.005, "rank1-switch")
    try:
        with Lab(slow) as lab:
            ceilings = lab.ceilings()
    except LabError as error:
        if "/dev/net/tun" in str(error):
            pytest.skip(str(error))
        raise
    fastest = {ceiling.wire.name: ceiling.round_trips[0] for ceiling in ceilings}
    assert fastest["w1"] >= 0.010 > fastest["w0"]
    assert all(ceiling.best > 0.5 * float(RATE) for ceiling in ceilings)
    assert lab.delay_figures is not None
    assert lab.delay_figures.lost == 0
    assert lab.delay_figures.packets > 100


def test_a_cut_wire_carries_nothing_until_it_is_mended() -> None:
    here = spec("star:2")
    body = """
def discipline():
    return subprocess.run(["tc", "qdisc", "show", "dev", "w0"], capture_output=True, text=True).stdout.split()[1]
while discipline() != sys.argv[1]: pass
print(sys.argv[1], reachable("198.18.0.2"))
"""
    written: list[bytes] = []
    with Lab(here) as lab:
        cut = [parse_fault("cut rank0-switch at 0s", here)]
        assert lab.run(["sh", "-c", f"{python(body)} blackhole"], cut, written.append) == 0
        assert lab.run(["sh", "-c", f"{python(body)} tbf"], write=written.append) == 0
    assert written == [b"rank 0 | blackhole False\n", b"rank 0 | tbf True\n"]


def test_a_slow_wire_has_its_new_rate_both_ways_until_the_end() -> None:
    here = spec("star:2")
    written: list[bytes] = []
    script = (
        '[ $RANK = 1 ] || exit 0; while :; do set -- $(tc qdisc show dev w1); [ "$8" = 5Mbit ] && echo $8 && exit; done'
    )
    with Lab(here) as lab:
        fault = parse_fault("slow switch-rank1 to 5mbit at 100ms", here)
        assert lab.run(["sh", "-c", script], [fault], written.append) == 0
        after = kernel.run(["tc", "-n", lab.namespace("s0"), "qdisc", "show", "dev", "w1"])
    assert written == [b"rank 1 | 5Mbit\n"]
    assert "rate 50Mbit" in after, "a lab can be used again: the fault ends with the command"


def test_a_flapping_wire_comes_and_goes() -> None:
    here = spec("star:2")
    script = """
[ $RANK = 0 ] || exit 0
for wanted in blackhole tbf blackhole tbf; do
  while set -- $(tc qdisc show dev w0); [ $2 != $wanted ]; do :; done
  echo $wanted
done"""
    code, lines = run(here, script, faults=[parse_fault("flap h0-s0 every 400ms", here)])
    assert code == 0
    assert lines == ["rank 0 | blackhole"] * 2 + ["rank 0 | tbf"] * 2


ALL_REDUCE = """
import numpy as np
from pathlib import Path
from syntony import Communicator, TcpBootstrap
comm = Communicator.create(TcpBootstrap.from_environment(60.0))
data = np.full(1 << 19, comm.rank + 1, np.float32)
comm.all_reduce(data, data)
comm.barrier()
sent = [int((device / "statistics/tx_bytes").read_text()) for device in Path("/sys/class/net").glob("w*")]
if comm.rank == 0:
    print("sum", data[0], data[-1], "both" if min(sent) > 0.3 * sum(sent) else sent)
comm.barrier()
comm.close()
"""


def test_syntony_uses_all_rails_at_once(tmp_path: Path) -> None:
    script = tmp_path / "all_reduce.py"
    script.write_text(ALL_REDUCE)
    code, lines = run("rail:boxes=2,gpus=2,rails=2", f"exec {sys.executable} {script}")
    assert (code, lines) == (0, ["rank 0 | sum 10.0 10.0 both"])


def test_syntony_meets_in_a_torus(tmp_path: Path) -> None:
    script = tmp_path / "all_reduce.py"
    script.write_text(ALL_REDUCE)
    code, lines = run("torus:2x2", f"exec {sys.executable} {script}")
    assert code == 0
    assert lines[0].startswith("rank 0 | sum 10.0 10.0")


IN_NETWORK = """
import numpy as np
from syntony import TcpBootstrap
from syntony.collectives.aggregation import InNetwork
with InNetwork.create(TcpBootstrap.from_environment(60.0)) as group:
    data = np.full(100_000, group.rank + 1, np.float32)
    group.all_reduce(data)
    print("sum", data[0], data[-1])
"""


def test_a_switch_adds(tmp_path: Path) -> None:
    script = tmp_path / "in_network.py"
    script.write_text(IN_NETWORK)
    code, lines = run("star:3,aggregator=sharp", f"exec {sys.executable} {script}")
    assert code == 0
    assert lines[:3] == [f"rank {rank} | sum 6.0 6.0" for rank in range(3)]
    assert lines[3].startswith("s0 | aggregator at 0.0.0.0:")


def instead(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """What the switch does."""
    monkeypatch.setattr("syntony.lab.lab.services", lambda spec: ((adding_switches(spec)[0], ("sh", "-c", words)),))


def test_slots_that_are_shared_have_a_server(tmp_path: Path) -> None:
    script = tmp_path / "in_network.py"
    script.write_text(IN_NETWORK)
    code, lines = run("star:3,aggregator=atp,aggregator.formats=float32", f"exec {sys.executable} {script}")
    assert code == 0
    assert lines[:3] == [f"rank {rank} | sum 6.0 6.0" for rank in range(3)]
    assert sorted(line.split(": ")[1] for line in lines[3:5]) == [
        "2048 slots of 8192 bytes",
        "605 shared slots of 8192 bytes",
    ]


def test_a_switch_that_cannot_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, "exit 5")
    with pytest.raises(LabError, match=r"^the process of switch s0 ended with exit code 5; nothing has been run$"):
        run("star:2,aggregator=sharp", "echo never")


@pytest.mark.parametrize("seen", ["while it runs", "when it has ended"])
def test_a_switch_that_ends_early_is_a_failure(monkeypatch: pytest.MonkeyPatch, seen: str) -> None:
    if seen == "when it has ended":
        await_services = processes._Crew.await_services

        def late(crew: processes._Crew) -> None:
            time.sleep(0.5)
            await_services(crew)

        monkeypatch.setattr(processes._Crew, "await_services", late)
    monkeypatch.setattr("syntony.lab.processes.GRACE", 0.2)
    instead(monkeypatch, "echo here; exit 0")
    code, lines = run("star:2,aggregator=sharp", "sleep 1000")
    assert code == 1
    assert "s0 | here" in lines


# ---- the command, and its end ----------------------------------------------------------------------------------------


def start(*words: str) -> subprocess.Popen[str]:
    """The command, once its ranks have begun to speak."""
    lab = subprocess.Popen([*SYNTONY, "lab", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert lab.stdout is not None
    said = []
    for line in lab.stdout:
        said.append(line)
        if "ready" in line:
            return lab
    pytest.fail("".join(said))


def labs() -> dict[str, tuple[int | None, list[str]]]:
    """By id, the process (None: left behind) and the namespaces of every lab of this machine."""
    done = subprocess.run([*SYNTONY, "lab", "list", "--json"], capture_output=True, text=True, check=True)
    return {lab["id"]: (lab["process"], lab["namespaces"]) for lab in json.loads(done.stdout)["labs"]}


def lab_of(process: int) -> str:
    return next(name for name, (owner, _) in labs().items() if owner == process)


WAITING = ["star:2", "--no-ceilings", "--", "sh", "-c", "echo ready $$; sleep 1000"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_everything(number: signal.Signals) -> None:
    lab = start(*WAITING)
    lab.send_signal(number)
    lab.communicate()
    assert lab.returncode == 128 + number


def clean() -> None:
    subprocess.run([*SYNTONY, "lab", "clean"], capture_output=True, check=True)


def another_lab() -> None:
    with Lab(spec("star:2")):
        pass


@pytest.mark.parametrize("remedy", [clean, another_lab])
def test_a_killed_lab_is_found_and_removed_and_others_are_left_alone(remedy: Callable[[], None]) -> None:
    living, killed = start(*WAITING), start(*WAITING)
    try:
        survivor, victim = lab_of(living.pid), lab_of(killed.pid)
        namespaces = labs()[victim][1]
        assert len(namespaces) == 3
        killed.kill()
        killed.communicate()
        assert labs()[victim] == (None, namespaces)
        remedy()
        assert victim not in labs()
        assert labs()[survivor][0] == living.pid
        subprocess.run([*SYNTONY, "lab", "clean", survivor], capture_output=True, check=True)
        assert survivor not in labs()
        assert living.wait(30) == 128 + signal.SIGTERM
    finally:
        living.kill()
        living.communicate()


def test_the_map_and_the_ceilings_as_json() -> None:
    command = [
        *SYNTONY,
        "lab",
        "rail:boxes=2,gpus=1,rails=2",
        "--rate",
        "50mbit",
        "--json",
        "--",
        "sh",
        "-c",
        "echo hi",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert sorted(done.stderr.splitlines()) == ["rank 0 | hi", "rank 1 | hi"]
    assert [(machine["name"], machine["ranks"]) for machine in told["machines"]] == [
        ("h0", [0]),
        ("h1", [1]),
        ("s0", []),
        ("s1", []),
    ]
    assert len(told["wires"]) == 4
    for wire in told["wires"]:
        for end in wire["ends"]:
            assert end["rate"] == 50e6 / 8
            assert 0.5 * end["rate"] < max(end["tcp"], end["tcp_alone"] or 0) < 1.1 * end["rate"]


def test_without_a_command_it_shows_the_map_and_waits() -> None:
    lab = subprocess.Popen([*SYNTONY, "lab", "star:2", "--no-ceilings"], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    said = ""
    for line in lab.stdout:
        said += line
        if "Ctrl-C removes the lab." in line:
            break
    lab.send_signal(signal.SIGINT)
    lab.communicate()
    namespace = re.search(r"ip netns exec (syntony-\w+-h0) bash", said)
    assert namespace is not None
    assert "198.18.0.1" in said
    assert lab.returncode == 130
