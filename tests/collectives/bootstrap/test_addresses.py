"""Two ranks on two hosts whose addresses are set up in all the ways that hosts are, with no variable of ours set.

A host is a network namespace. Needs root, iproute2 and a kernel that lets us; skips with the reason. The lines of a
set-up are those of `ip` in the namespace a, b, or r (what lies between them): "a addr add 10.0.0.1/24 dev eth0".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.wires

RANK = """
import numpy as np
from syntony import Communicator, TcpBootstrap
with Communicator.create(TcpBootstrap.from_environment(), timeout=30) as group:
    data = np.full(100_000, group.rank + 1.0)
    group.all_reduce(data)
    print(data.min(), data.max(), len(group.boxes))
"""


@dataclass(frozen=True)
class Setup:
    """How the hosts are wired and addressed."""

    lines: str
    cables: str = "a.eth0 b.eth0"
    """Pairs of ends; each is up in the end."""
    master: str = "10.0.0.1"
    hosts: str = ""
    """/etc/hosts on both."""
    alone: bool = False
    """Both ranks are on host a."""
    variables: str = ""
    rules: str = ""
    """For nft: a chain and a rule of it, by host."""


INPUT = "type filter hook input priority 0;"
DIALED = 'iifname "eth0" tcp dport != 29500 tcp flags & (syn | ack) == syn'
"""Connections to whatever listens but the bootstrap, which ranks must be able to dial."""
ONE_SUBNET = """
    a addr add 10.0.0.1/24 dev eth0
    b addr add 10.0.0.2/24 dev eth0
"""
DOCKER = """
    {0} link add docker0 type bridge
    {0} addr add 172.17.0.1/16 dev docker0
    {0} link add veth0 type veth peer name veth1
    {0} link set veth0 master docker0
    {0} link set veth0 up
    {0} link set veth1 up
    {0} link set docker0 up
"""
SETUPS = {
    "one subnet": Setup(ONE_SUBNET),
    "IPv6 only": Setup(
        """
        a addr add fd00::1/64 dev eth0 nodad
        b addr add fd00::2/64 dev eth0 nodad
        """,
        master="fd00::1",
    ),
    "both families": Setup(
        ONE_SUBNET
        + """
        a addr add fd00::1/64 dev eth0 nodad
        b addr add fd00::2/64 dev eth0 nodad
        """
    ),
    "IPv4 on one host only": Setup(
        """
        a addr add 10.5.0.1/24 dev eth0
        a addr add fd00::1/64 dev eth0 nodad
        b addr add fd00::2/64 dev eth0 nodad
        """,
        master="fd00::1",
    ),
    "point to point": Setup(
        """
        a addr add 10.0.0.1 peer 10.0.0.2 dev eth0
        b addr add 10.0.0.2 peer 10.0.0.1 dev eth0
        """
    ),
    "a subnet of two": Setup(
        """
        a addr add 10.0.0.0/31 dev eth0
        b addr add 10.0.0.1/31 dev eth0
        """,
        master="10.0.0.0",
    ),
    "two subnets and a router": Setup(
        """
        a addr add 10.0.0.1/24 dev eth0
        r addr add 10.0.0.254/24 dev eth0
        r addr add 10.0.1.254/24 dev eth1
        b addr add 10.0.1.1/24 dev eth0
        -- up
        a route add default via 10.0.0.254
        b route add default via 10.0.1.254
        """,
        cables="a.eth0 r.eth0, b.eth0 r.eth1",
    ),
    "host routes to a gateway": Setup(
        """
        a addr add 10.0.0.1/32 dev eth0
        b addr add 10.0.0.2/32 dev eth0
        r addr add 10.0.0.254/32 dev eth0
        -- up
        a route add 10.0.0.254 dev eth0
        a route add default via 10.0.0.254
        b route add 10.0.0.254 dev eth0
        b route add default via 10.0.0.254
        r route add 10.0.0.1 dev eth0
        r route add 10.0.0.2 dev eth1
        r addr add 10.0.0.254/32 dev eth1
        """,
        cables="a.eth0 r.eth0, b.eth0 r.eth1",
    ),
    "two rails": Setup(
        ONE_SUBNET
        + """
        a addr add 10.0.1.1/24 dev eth1
        b addr add 10.0.1.2/24 dev eth1
        """,
        cables="a.eth0 b.eth0, a.eth1 b.eth1",
    ),
    "the first card leads nowhere": Setup(
        """
        a addr add 10.9.0.1/24 dev eth0
        b addr add 10.8.0.1/24 dev eth0
        a addr add 10.0.0.1/24 dev eth1
        b addr add 10.0.0.2/24 dev eth1
        """,
        cables="a.eth0 r.eth0, b.eth0 r.eth1, a.eth1 b.eth1",
    ),
    "the same Docker bridge on both": Setup(ONE_SUBNET + DOCKER.format("a") + DOCKER.format("b")),
    "NCCL's ^lo,docker": Setup(
        ONE_SUBNET + DOCKER.format("a") + DOCKER.format("b"), variables="SYNTONY_SOCKET_IFNAME=^lo,docker"
    ),
    "a switch between the hosts": Setup(
        ONE_SUBNET
        + """
        r link add br0 type bridge
        r link set eth0 master br0
        r link set eth1 master br0
        r link set br0 up
        """,
        cables="a.eth0 r.eth0, b.eth0 r.eth1",
    ),
    "addresses on bridges": Setup(
        """
        a link add br0 type bridge
        a link set eth0 master br0
        a addr add 10.0.0.1/24 dev br0
        a link set br0 up
        b link add br0 type bridge
        b link set eth0 master br0
        b addr add 10.0.0.2/24 dev br0
        b link set br0 up
        """
    ),
    "macvlan": Setup(
        """
        a link add link eth0 name net1 type macvlan mode bridge
        a addr add 10.0.0.1/24 dev net1
        a link set net1 up
        b link add link eth0 name net1 type macvlan mode bridge
        b addr add 10.0.0.2/24 dev net1
        b link set net1 up
        """
    ),
    "routed to the host": Setup(
        ONE_SUBNET
        + """
        a addr add 10.255.0.1/32 dev lo
        b addr add 10.255.0.2/32 dev lo
        -- up
        a route add 10.255.0.2 via 10.0.0.2 src 10.255.0.1
        b route add 10.255.0.1 via 10.0.0.1 src 10.255.0.2
        """,
        master="10.255.0.1",
    ),
    "several addresses on a card": Setup(
        """
        a addr add 192.168.9.1/24 dev eth0
        a addr add 10.0.0.1/24 dev eth0
        b addr add 10.0.0.2/24 dev eth0
        b addr add 192.168.8.1/24 dev eth0
        """
    ),
    "small packets": Setup("a link set eth0 mtu 576\nb link set eth0 mtu 576" + ONE_SUBNET),
    "cards of unlike names": Setup(
        """
        a addr add 10.0.0.1/24 dev eth0
        b addr add 10.0.0.2/24 dev enp3s0f1np1
        """,
        cables="a.eth0 b.enp3s0f1np1",
    ),
    "the host's name is 127.0.1.1": Setup(ONE_SUBNET, hosts="127.0.0.1 localhost\n127.0.1.1 node-a node-b\n"),
    "the host's name is nowhere": Setup(ONE_SUBNET, hosts="127.0.0.1 localhost\n"),
    "the host's name is an address of others": Setup(
        ONE_SUBNET, hosts="127.0.0.1 localhost\n203.0.113.7 node-a node-b\n"
    ),
    "a master by its name": Setup(
        ONE_SUBNET, hosts="127.0.0.1 localhost\n10.0.0.1 node-a\n10.0.0.2 node-b\n", master="node-a"
    ),
    "a master in two networks, of which one is silent": Setup(
        ONE_SUBNET
        + """
        a addr add 10.0.1.1/24 dev eth1
        b addr add 10.0.1.2/24 dev eth1
        -- up
        b neigh add 10.0.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
        """,
        cables="a.eth0 b.eth0, a.eth1 b.eth1",
        hosts="127.0.0.1 localhost\n10.0.0.1 node-a\n10.0.1.1 node-a\n",
        master="node-a",
    ),
    "rank 0 cannot be dialed": Setup(ONE_SUBNET, rules=f"a {INPUT} {DIALED} drop"),
    "rank 0 refuses": Setup(ONE_SUBNET, rules=f"a {INPUT} {DIALED} reject"),
    "rank 1 cannot be dialed": Setup(ONE_SUBNET, rules=f"b {INPUT} {DIALED} drop"),
    "rank 1 refuses": Setup(ONE_SUBNET, rules=f"b {INPUT} {DIALED} reject with tcp reset"),
    "address translation": Setup(
        """
        a addr add 10.0.0.1/24 dev eth0
        r addr add 10.0.0.254/24 dev eth0
        r addr add 192.168.7.254/24 dev eth1
        b addr add 192.168.7.1/24 dev eth0
        -- up
        b route add default via 192.168.7.254
        """,
        cables="a.eth0 r.eth0, b.eth0 r.eth1",
        rules='r type nat hook postrouting priority 100; oifname "eth0" masquerade',
    ),
    "no network at all": Setup("", cables="", master="127.0.0.1", alone=True),
}
IN_EVERY_RUN = (
    "IPv6 only",
    "the same Docker bridge on both",
    "the host's name is 127.0.1.1",
    "rank 0 cannot be dialed",
    "rank 1 refuses",
)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")


def _wait_until_up(namespace: str, card: str) -> None:
    """The kernel may take a second to notice that both ends of a cable are up; until then the card is not used."""
    end = time.monotonic() + 10
    shown = ["ip", "-n", namespace, "-o", "link", "show", card]
    while "state UP" not in subprocess.run(shown, capture_output=True, text=True, check=False).stdout:
        if time.monotonic() > end:
            raise OSError(f"{card} of {namespace} does not come up")
        time.sleep(0.02)


@contextmanager
def _hosts(setup: Setup) -> Iterator[dict[str, str]]:
    """The namespaces by their letter, wired and addressed."""
    names = {letter: f"syntony-{os.getpid()}-{letter}" for letter in "abr"}
    with ExitStack() as stack:
        for name in names.values():
            _ip("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
            _ip("-n", name, "link", "set", "lo", "up")
        ends = re.findall(r"(\w)\.(\S+) (\w)\.([^,\s]+)", setup.cables)
        for one, card, other, far in ends:
            _ip("-n", names[one], *f"link add {card} type veth peer name {far} netns {names[other]}".split())
        before, _, after = setup.lines.partition("-- up")
        for part in (before, after):
            for line in filter(None, map(str.strip, part.splitlines())):
                _ip("-n", names[line[0]], *line[1:].split())
            if part is before:
                for one, card, other, far in ends:
                    _ip("-n", names[one], "link", "set", card, "up")
                    _ip("-n", names[other], "link", "set", far, "up")
        for one, card, other, far in ends:
            _wait_until_up(names[one], card)
            _wait_until_up(names[other], far)
        for rule in filter(None, setup.rules.splitlines()):
            chain, what = rule[1:].split(";", 1)
            script = f"add table ip syntony; add chain ip syntony it {{ {chain}; }}; add rule ip syntony it {what}"
            _ip("netns", "exec", names[rule[0]], "nft", script)
        forward = "sysctl -q -w net.ipv4.ip_forward=1"
        subprocess.run(["ip", "netns", "exec", names["r"], *forward.split()], check=False, capture_output=True)
        yield names


@pytest.fixture(scope="module", autouse=True)
def needs_a_kernel_that_lets_us() -> None:
    """By trying: containers differ in what they allow."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    try:
        with _hosts(SETUPS["one subnet"]):
            pass
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.sweep) for name in SETUPS]
)
def test_a_group_is_formed(name: str, tmp_path: Path) -> None:
    setup = SETUPS[name]
    if setup.rules and shutil.which("nft") is None:
        pytest.skip("needs nft")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SYNTONY_")}
    clean |= {"WORLD_SIZE": "2", "MASTER_ADDR": setup.master, "MASTER_PORT": "29500"}
    clean |= dict(word.split("=", 1) for word in setup.variables.split())
    (tmp_path / "hosts").write_text(setup.hosts)
    with _hosts(setup) as names:
        ranks = []
        for rank, letter in enumerate("aa" if setup.alone else "ab"):
            command = [sys.executable, "-c", RANK]
            if setup.hosts:
                mounted = f'mount --bind {tmp_path / "hosts"} /etc/hosts && hostname node-{letter} && exec "$@"'
                command = ["unshare", "--mount", "--uts", "sh", "-c", mounted, "sh", *command]
            ranks.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", names[letter], *command],
                    env=clean | {"RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        told = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert told == [f"3.0 3.0 {1 if setup.alone else 2}\n"] * 2


MEETING = """
import sys
from syntony import TcpBootstrap
with TcpBootstrap.from_environment() as bootstrap:
    for name in ("with both cards", "with one"):
        print(bootstrap.all_gather(name, b"%d" % bootstrap.rank), flush=True)
        sys.stdin.readline()
"""


def test_a_card_that_fails_while_ranks_meet() -> None:
    """The second of rank 0's addresses lies on another card: rank 1 goes on over it."""
    setup = Setup(
        ONE_SUBNET
        + """
        a addr add 10.0.1.1/24 dev eth1
        b addr add 10.0.1.2/24 dev eth1
        """,
        cables="a.eth0 b.eth0, a.eth1 b.eth1",
    )
    clean = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1,10.0.1.1", "MASTER_PORT": "29500"}
    with _hosts(setup) as names, ExitStack() as stack:
        ranks = []
        for rank, letter in enumerate("ab"):
            command = ["ip", "netns", "exec", names[letter], sys.executable, "-c", MEETING]
            environment = clean | {"RANK": str(rank), "SYNTONY_SECRET": "sesame"}
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
            stack.callback(process.kill)
            ranks.append(process)
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == "[b'0', b'1']\n"
        _ip("-n", names["b"], "link", "set", "eth0", "down")
        for process in ranks:
            assert process.stdin is not None
            process.stdin.write("\n\n")
            process.stdin.flush()
        told = [process.communicate(timeout=100)[0] for process in ranks]
    assert told == ["[b'0', b'1']\n"] * 2
