"""Hosts that refuse or lack what others give: a group works there, or says in one sentence what is refused.

Networks that are odd: tests/collectives/bootstrap/test_addresses.py. Too few descriptors: test_forming.py. Quotas of
cpus: tests/csrc/test_host.py. One system call that fails once: tests/csrc/faults.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.csrc.runtime import seccomp
from tests.csrc.runtime.harness import Rank, run_as_processes
from tests.programs import program

ROOT = Path(__file__).parents[4]
CLONE_NEWNS, CLONE_NEWUSER, MS_PRIVATE, MS_REC = 0x20000, 0x10000000, 1 << 18, 1 << 14


def worked(rank: Rank) -> str:
    """What came of a group's life here: "works", or its error."""
    try:
        group = rank.join(timeout=10.0)
        for count in (3, 5_000, 3_000_000):
            data = np.full(count, rank.rank + 1, np.int64)
            group.all_reduce(data)
            assert (data == sum(range(1, group.size + 1))).all()
        group.barrier()
        group.shutdown()
    except RuntimeError as error:
        return str(error)
    return "works"


def allowed(done: int) -> bool:
    return done == 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSPC, errno.EINVAL)


def small_dev_shm() -> str | None:
    """As in a container of Docker's; why this system does not let it be made, if it does not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not allowed(libc.unshare(CLONE_NEWNS)):
        return os.strerror(ctypes.get_errno())
    libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    done = libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=64m")
    return None if done == 0 else os.strerror(ctypes.get_errno())


def own_users() -> str | None:
    """A namespace of users for each rank."""
    libc = ctypes.CDLL(None, use_errno=True)
    return None if libc.unshare(CLONE_NEWUSER) == 0 else os.strerror(ctypes.get_errno())


def one_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def without(call: str, code: int = errno.EPERM) -> Callable[[], None]:
    return lambda: seccomp.refuse(call, seccomp.ERRNO + code)


ODD: dict[str, Callable[[], str | None]] = {
    "/dev/shm of 64 MB": small_dev_shm,
    "a namespace of users for each rank": own_users,
    "one cpu for all": one_cpu,
    "no process_vm_readv": without("process_vm_readv"),
    "a kernel without process_vm_readv": without("process_vm_readv", errno.ENOSYS),
    "no pidfd_open": without("pidfd_open"),
    "a kernel without pidfd_open": without("pidfd_open", errno.ENOSYS),
    "no memfd_create": without("memfd_create"),
    "no sendmsg": without("sendmsg"),
    "no recvmsg": without("recvmsg"),
}
REFUSED = ("no memfd_create", "no sendmsg", "no recvmsg")
"""Where ranks cannot share memory."""


def live_on(rank: Rank, what: str) -> str:
    why = ODD[what]()
    if why is not None:
        return f"not here: {why}"
    said = worked(rank)
    if what == "/dev/shm of 64 MB" and list(Path("/dev/shm").iterdir()):
        return f"left in /dev/shm: {list(Path('/dev/shm').iterdir())}"
    return said


@pytest.mark.parametrize("what", ODD)
def test_it_works_or_says_why(what: str) -> None:
    slots = {"SYNTONY_SLOT_BYTES": str(1 << 20)}  # so that all of them are more than 64 MB
    said = run_as_processes(live_on, 3, what, deadline=40.0, environment=slots)
    if said[0].startswith("not here"):
        pytest.skip(said[0])
    if what not in REFUSED:
        assert said == ["works"] * 3
        return
    for sentence in said:
        assert re.search("Operation not permitted; .* give every rank a SYNTONY_HOST of its own", sentence), said
        assert "\n" not in sentence


def test_what_the_sentence_advises_helps() -> None:
    assert run_as_processes(live_on, 3, "no memfd_create", deadline=40.0, hosts="abc") == ["works"] * 3


@pytest.mark.parametrize("what", REFUSED)
def test_where_one_rank_is_refused_all_name_it(what: str) -> None:
    said = run_as_processes(live_of_one, 3, what, deadline=40.0)
    told = [sentence for sentence in said if sentence != "works"]
    assert told in ([], said), said  # all, or nobody: it may have been another rank's part
    for rank, sentence in enumerate(told):
        assert "Operation not permitted" in sentence, said
        assert rank == 1 or "rank 1" in sentence, said


def live_of_one(rank: Rank, what: str) -> str:
    if rank.rank == 1:
        ODD[what]()
    return worked(rank)


# ---- hosts that only a process's start can make odd -----------------------------------------------------------------

RANK = """
import os, sys
import numpy as np
from syntony import Communicator, TcpBootstrap
rank = int(os.environ["RANK"])
group = Communicator.create(TcpBootstrap.from_environment(20), timeout=20)
data = np.full(300_000, rank + 1.0)
for _ in range(20):
    group.all_reduce(data, op="max")
assert (data == group.size).all()
print(len(group.boxes), flush=True)
if rank == 1:
    exec(sys.argv[1])
try:
    group.all_reduce(data, op="max")
except Exception as error:
    print(error)
"""
DIES = "os._exit(1)"


def of_two(before: list[str], last: str, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    """Two ranks, each a command after `before`; rank 1 does `last` in the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **environment}
    ranks = [
        subprocess.Popen(
            [*before, sys.executable, "-c", RANK, last],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | shared | {"RANK": str(rank)},
        )
        for rank in range(2)
    ]
    ended = [rank.communicate(timeout=60) for rank in ranks]
    return [subprocess.CompletedProcess("", rank.returncode, *said) for rank, said in zip(ranks, ended, strict=True)]


def test_in_containers_of_one_pod() -> None:
    """Namespaces of processes of their own, one of networks: two hosts, as neither sees the other's processes."""
    before = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody have a namespace of processes")
    first, second = of_two(before, DIES)
    assert second.stdout == "2\n", second.stderr
    assert re.match(r"2\n.*rank 1 \(process \d+ on .*\) died", first.stdout, re.DOTALL), first


def test_where_the_clock_jumps() -> None:
    clock = program("jumping_clock.so")
    first, second = of_two([], DIES, LD_PRELOAD=str(clock), SYNTONY_TRACE_DIR="")
    assert second.stdout == "1\n", second.stderr
    assert re.match(r"1\n.*rank 1 \(process \d+ on .*\) died", first.stdout, re.DOTALL), first


def test_the_clock_does_jump() -> None:
    tell = "import time; print(*sorted(round(time.time() / 3600) for _ in range(2)))"
    preloaded = os.environ | {"LD_PRELOAD": str(program("jumping_clock.so"))}
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, env=preloaded, check=True)
    before, after = map(int, done.stdout.split())
    assert after - before == 2


def test_who_exceeds_its_memory_is_named() -> None:
    """A control group's limit, at which the kernel ends the process."""
    own = re.search(r"^\d+:memory:(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    above = Path("/sys/fs/cgroup") / (f"memory{own[1]}" if own else "")
    folder = above / f"syntony-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if own else "memory.max")
    try:
        folder.mkdir()
        limit.write_text(str(300 << 20))
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    enter = f"open({str(folder / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
    try:
        first, second = of_two([], f"{enter}; everything = [np.ones(1 << 24) for _ in range(40)]")
    finally:
        folder.rmdir()
    assert second.returncode == -9, second
    assert re.match(r"1\n.*rank 1 \(process \d+ on .*\) died", first.stdout, re.DOTALL), first
