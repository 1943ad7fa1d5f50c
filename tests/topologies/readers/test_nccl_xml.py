"""NCCL's topology files: real ones counted by hand, machines made up for the test, and every kind of damage."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.topologies import Topology, file_format, parse
from syntony.topologies.hosts import hosts_of
from syntony.topologies.readers.nccl_xml import read
from tests.sampled import examples

FOREIGN = Path(__file__).parents[4] / "shared" / "foreign" / "nccl-topology"
GIGA = 10**9


@dataclass(frozen=True)
class Counted:
    """What one file has, counted in its text with grep: elements, and <xgmi> elements by their `count`."""

    gpus: int
    nics: int
    cpus: int
    bridges: int
    xgmi: dict[int, int]
    xgmi_rate: int = 46
    nic_rate: str = "25"


# <pci> elements are GPUs, NICs and bridges; only topo_4p3l has a NIC that is none of them (veth608058c).
MACHINES = {
    "topo_16p1h": Counted(16, 8, 4, 52 - 16 - 8, {1: 32, 2: 8, 4: 16}, 50),
    "topo_3p_pcie": Counted(3, 1, 2, 7 - 3 - 1, {}),
    "topo_4p2h": Counted(8, 1, 1, 19 - 8 - 1, {1: 16}, nic_rate="12.5"),
    "topo_4p3l": Counted(4, 2, 1, 11 - 4 - 1, {1: 12}, nic_rate="0.25 1.25"),
    "topo_4p_940": Counted(4, 4, 4, 0, {1: 12}, 64, nic_rate="31.5"),
    "topo_8p1h": Counted(8, 4, 2, 26 - 8 - 4, {1: 12, 2: 4, 4: 8}, 50),
    "topo_8p6l": Counted(8, 1, 2, 17 - 8 - 1, {1: 48}),
    "topo_8p6l_6nic": Counted(8, 6, 2, 22 - 8 - 6, {1: 48}),
    "topo_8p_4nics": Counted(8, 4, 4, 32 - 8 - 4, {1: 24}),
    "topo_8p_90a": Counted(8, 1, 1, 10 - 8 - 1, {1: 24}, 50, nic_rate="0.125"),
    "topo_8p_940": Counted(8, 8, 2, 40 - 8 - 8, {1: 56}, 64, nic_rate="50"),
    "topo_8p_pcie": Counted(8, 1, 1, 19 - 8 - 1, {}, nic_rate="12.5"),
    "topo_8p_rome": Counted(8, 1, 2, 17 - 8 - 1, {1: 16}),
    "topo_8p_rome_4nics": Counted(8, 4, 4, 32 - 8 - 4, {1: 24}),
    "topo_8p_rome_n4": Counted(8, 1, 7, 17 - 8 - 1, {1: 16}),
    "topo_8p_ts1": Counted(8, 2, 4, 18 - 8 - 2, {1: 16}),
    "topo_collnet_n4": Counted(8, 4, 4, 32 - 8 - 4, {1: 24}),
}


def _foreign(name: str) -> bytes:
    path = FOREIGN / f"{name}.xml"
    if not path.exists():
        pytest.skip("the foreign files are not beside this checkout")
    return path.read_bytes()


def _peers(topology: Topology) -> list[Fraction]:
    """Bandwidths of the links from rank to rank."""
    return [link.bandwidth for link in topology.links if max(link.src, link.dst) < topology.ranks]


@pytest.mark.parametrize("name", MACHINES)
def test_the_machine_of_a_shared_file(name: str) -> None:
    counted = MACHINES[name]
    topology = read(_foreign(name), f"{name}.xml")
    kinds = Counter(node.kind for node in topology.nodes)
    assert kinds == {"rank": counted.gpus, "nic": counted.nics, "switch": counted.cpus + counted.bridges}
    assert sum(node.name.startswith("cpu") for node in topology.nodes) == counted.cpus

    rate = Fraction(counted.xgmi_rate * GIGA)
    assert Counter(_peers(topology)) == {count * rate: number for count, number in counted.xgmi.items()}
    cables = counted.gpus + counted.nics + counted.bridges + counted.cpus * (counted.cpus - 1) // 2
    assert len(topology.links) == 2 * cables + sum(counted.xgmi.values())

    nics = {link.bandwidth for link in topology.links if topology.nodes[link.src].kind == "nic"}
    assert " ".join(f"{float(speed) / GIGA:g}" for speed in sorted(nics)) == counted.nic_rate
    assert topology.about.startswith(f"{counted.gpus} GPUs, {counted.nics} NIC")
    (host,) = hosts_of(topology)
    assert (len(host.ranks), len(host.nics)) == (counted.gpus, counted.nics)
    assert file_format.from_json(file_format.to_json(topology)) == topology


def test_every_shared_file_is_in_the_table() -> None:
    if not FOREIGN.is_dir():
        pytest.skip("the foreign files are not beside this checkout")
    assert {path.stem for path in FOREIGN.glob("*.xml")} == set(MACHINES)


def test_the_words_for_a_machine() -> None:
    assert read(_foreign("topo_8p1h"), "topo_8p1h.xml").about == (
        "8 GPUs, 4 NICs of 25 GB/s, 2 NUMA nodes; xGMI 4 x 50 GB/s between 4 pairs of GPUs, "
        "2 x 50 GB/s between 2 pairs of GPUs, 1 x 50 GB/s between 6 pairs of GPUs"
    )
    assert read(_foreign("topo_collnet_n4"), "x.xml").about.endswith("4 of the NICs reduce in the network (collnet)")
    assert read(_foreign("topo_3p_pcie"), "x.xml").about.endswith("GPUs reach each other over PCI Express")


# Machines made up ---------------------------------------------------------------------------------------------------


def _xml(*cpus: str, version: int = 1) -> bytes:
    return f'<system version="{version}">\n{"".join(cpus)}</system>\n'.encode()


def _cpu(inside: str, numa: int = 0, model: int = 85, more: str = "") -> str:
    kind = f'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="{model}" affinity="ffff"'
    return f'<cpu numaid="{numa}" {kind} {more}>\n{inside}</cpu>\n'


def _pci(bus: str, kind: str, inside: str, speed: str = "8.0 GT/s PCIe") -> str:
    return f'<pci busid="{bus}" class="{kind}" link_speed="{speed}" link_width="16">\n{inside}</pci>\n'


def _gpu(number: int, links: str = "", sm: int = 70) -> str:
    return _pci(_bus(number), "0x030200", f'<gpu dev="{number}" sm="{sm}" rank="{number}" gdr="1">\n{links}</gpu>\n')


def _bus(number: int) -> str:
    return f"0000:{number + 16:02x}:00.0"


def _nvlink(target: str, count: int, kind: str = "0x030200") -> str:
    return f'<nvlink target="{target}" count="{count}" tclass="{kind}"/>\n'


def _switched(number: int, counts: list[int], sm: int) -> str:
    """A GPU on NVSwitches."""
    return _gpu(number, "".join(_nvlink(f"0000:c{k:x}:00.0", n, "0x068000") for k, n in enumerate(counts)), sm)


def test_a_dgx1_has_the_wires_of_the_family() -> None:
    family = parse("dgx1")
    gpus = []
    for rank in range(8):
        links = [
            _nvlink(_bus(link.dst), int(link.bandwidth / (25 * GIGA)))
            for link in family.links_from(rank)
            if link.dst < 8
        ]
        gpus.append(_gpu(rank, "".join(links)))
    topology = read(_xml(_cpu("".join(gpus[:4])), _cpu("".join(gpus[4:]), numa=1)), "dgx1.xml")
    wires = Counter((link.src, link.dst, link.bandwidth) for link in topology.links if max(link.src, link.dst) < 8)
    assert wires == Counter((link.src, link.dst, link.bandwidth) for link in family.links)
    assert "NVLink 2 x 25 GB/s between 8 pairs of GPUs, 1 x 25 GB/s between 8 pairs of GPUs" in topology.about


@pytest.mark.parametrize(
    ("gpus", "counts", "sm", "per_gpu", "shares"),
    [
        (16, [1] * 6, 70, 150, False),  # DGX-2
        (8, [2] * 6, 80, 300, False),  # DGX A100
        (8, [5, 5, 4, 4], 90, 450, True),  # DGX H100
        (8, [9, 9], 100, 900, True),  # B200
        (4, [4], 60, 80, False),
    ],
)
def test_boxes_with_nvswitches(gpus: int, counts: list[int], sm: int, per_gpu: int, shares: bool) -> None:
    topology = read(_xml(_cpu("".join(_switched(number, counts, sm) for number in range(gpus)))), "box.xml")
    (switch,) = (node for node in topology.nodes if node.name == "nvswitch")
    assert (switch.multicast, switch.reduces) == (shares, shares)
    for gpu in range(gpus):
        for there, back in ((gpu, switch.id), (switch.id, gpu)):
            assert [link.bandwidth for link in topology.links_between(there, back)] == [per_gpu * GIGA]
    assert f"NVLink {sum(counts)} x {per_gpu // sum(counts)} GB/s from {gpus} GPUs to the NVSwitch" in topology.about


def test_a_hidden_nvswitch_and_a_class_that_is_not_told() -> None:
    """In virtual machines NVSwitches have no address; files made by hand leave the class out."""
    hidden = _gpu(0, '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>', 90)
    untold = _gpu(1, f'<nvlink target="{_bus(9)}" count="18"/>', 90)
    direct = _gpu(2, f'<nvlink target="{_bus(0)}" count="2"/>', 90)
    topology = read(_xml(_cpu(hidden + untold + direct)), "vm.xml")
    switch = next(node.id for node in topology.nodes if node.name == "nvswitch")
    assert topology.links_between(0, switch)[0].bandwidth == topology.links_between(1, switch)[0].bandwidth
    assert [link.bandwidth for link in topology.links_between(2, 0)] == [50 * GIGA]
    assert "one way between 1 pair of GPUs" in topology.about


def test_a_container_sees_only_some_gpus() -> None:
    topology = read(_xml(_cpu(_gpu(3, _nvlink(_bus(4), 2) + _nvlink(_bus(5), 1)) + _gpu(4, _nvlink(_bus(3), 2)))), "c")
    assert topology.ranks == 2  # ranks 3 and 4 of some job are 0 and 1 here
    assert _peers(topology) == [50 * GIGA, 50 * GIGA]


def test_grace_blackwell_trays_share_one_nvswitch() -> None:
    def tray(host: int) -> str:
        gpus = "".join(
            _pci(
                f"000{8 + i}:06:00.0",
                "0x030200",
                f'<gpu dev="{i}" sm="100" rank="{2 * host + i}" gdr="1">'
                '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="44712" count="5"/></gpu>',
                "32.0 GT/s PCIe",
            )
            for i in range(2)
        )
        return f'<cpu host_hash="0xab{host}" numaid="0" arch="arm64">\n{gpus}</cpu>\n'

    topology = read(_xml(tray(1), tray(2)), "nvl.xml")
    assert [node.name for node in topology.nodes[:4]] == ["host0.gpu0", "host0.gpu1", "host1.gpu0", "host1.gpu1"]
    cpus = [node.id for node in topology.nodes if node.name.endswith("cpu0")]
    assert len(cpus) == 2
    assert not topology.links_between(*cpus)  # processors of two hosts
    assert max(link.bandwidth for link in topology.links_between(0, cpus[0])) == 5 * 44712 * 10**6
    assert topology.about.startswith("2 hosts, 4 GPUs, no NIC, 2 NUMA nodes; NVLink 18 x 50 GB/s from 4 GPUs to the ")
    assert "C2C 5 x 44.71 GB/s from 4 GPUs to the processor" in topology.about


def test_power9_links_gpus_to_processors() -> None:
    gpu = _gpu(0, '<nvlink target="0004:00:00.0" count="3" tclass="0x068001"/>')
    topology = read(_xml(_cpu(gpu).replace("x86_64", "ppc64"), _cpu("", 8).replace("x86_64", "ppc64")), "p9.xml")
    assert {link.bandwidth for link in topology.links_between(0, 1)} == {
        75 * GIGA,
        Fraction("15.75") * GIGA,
    }
    assert topology.links_between(1, 2)[0].bandwidth == 32 * GIGA


def test_a_file_for_virtual_machines_has_classes_only() -> None:
    """As clouds hand them out: no <gpu>, no <nic>, no rates that /sys would tell."""
    device = '<pci busid="0001:00:00.0" class="0x030200"/><pci busid="0101:00:00.0" class="0x020700" link_speed=""/>'
    topology = read(_xml(_cpu(_pci("ffff:ff:01.0", "0x060400", device, "16 GT/s"))), "vm.xml")
    assert [node.name for node in topology.nodes] == ["gpu", "cpu0", "pci-ffff:ff:01.0", "nic-0101:00:00.0"]
    assert topology.about.endswith("2 PCI links of unknown speed taken as generation 3 x16")


def test_ports_of_a_card_share_its_link() -> None:
    ports = '<nic><net name="a" dev="0" speed="200000"/><net name="b" dev="1" speed="100000"/></nic>'
    topology = read(_xml(_cpu(_gpu(0) + _pci("0000:61:00.0", "0x020700", ports))), "card.xml")
    card = next(node.id for node in topology.nodes if node.name == "card-61:00.0")
    nics = {node.name: node.id for node in topology.nodes if node.kind == "nic"}
    assert topology.links_between(nics["a"], card)[0].bandwidth == 25 * GIGA
    assert topology.links_between(card, nics["b"])[0].bandwidth == Fraction(125, 10) * GIGA
    assert len(topology.links_from(card)) == 3


def test_ranks_that_share_a_gpu_share_its_links() -> None:
    two = "".join(f'<gpu dev="0" sm="90" rank="{rank}">{_nvlink(_bus(1), 18)}</gpu>\n' for rank in (0, 1))
    topology = read(_xml(_cpu(_pci(_bus(0), "0x030200", two) + _gpu(2, _nvlink(_bus(0), 18), 90))), "mig.xml")
    device = next(node.id for node in topology.nodes if node.name.startswith("device-"))
    assert len(topology.links_from(device)) == 3
    assert [node.name for node in topology.nodes[:3]] == ["gpu0", "gpu0#2", "gpu2"]
    assert [link.bandwidth for link in topology.links_between(2, device)] == [450 * GIGA]


def test_nics_of_containers_and_nics_that_are_not_used() -> None:
    """A container's dump lists its one interface at every processor; merged devices lose their `dev`."""
    nic = '<nic><net name="eth0" dev="0" speed="-1"/></nic>\n'
    unused = _pci("0000:62:00.0", "0x020000", '<nic><net name="mlx5_9" speed="1"/></nic>')
    topology = read(_xml(_cpu(_gpu(0) + nic), _cpu(unused + nic, 1)), "c.xml")
    (eth,) = (node.id for node in topology.nodes if node.kind == "nic")
    assert topology.links_from(eth)[0].bandwidth == Fraction(10**10, 8)
    assert topology.about.endswith("left out: 1 without a rank or a dev")


def test_switches_may_be_linked_beside_the_tree() -> None:
    link = '<pcilink target="0000:42:00.0"/><pcilink target="0000:99:00.0"/>'
    one = _pci("0000:41:00.0", "0x060400", _gpu(0) + link, "16.0 GT/s PCIe")
    other = _pci("0000:42:00.0", "0x060400", _gpu(1), "16.0 GT/s PCIe")
    topology = read(_xml(_cpu(one + other)), "bcm.xml")
    names = {node.name: node.id for node in topology.nodes}
    (wire,) = topology.links_between(names["pci-41:00.0"], names["pci-42:00.0"])
    assert wire.bandwidth == Fraction("31.5") * GIGA


def test_bridges_that_lead_nowhere_are_left_out_with_their_links() -> None:
    unranked = _pci(_bus(7), "0x030200", '<gpu dev="7" sm="70"/>')
    dead = _pci("0000:41:00.0", "0x060400", unranked + '<pcilink target="0000:42:00.0"/>')
    alive = _pci("0000:42:00.0", "0x060400", _gpu(0) + '<pcilink target="0000:41:00.0"/>')
    topology = read(_xml(_cpu(dead + alive)), "dead.xml")
    assert [node.name for node in topology.nodes] == ["gpu0", "cpu0", "pci-42:00.0"]
    assert topology.about.endswith("left out: 1 without a rank or a dev")


@pytest.mark.parametrize(("model", "rate"), [(79, 6), (85, 10), (143, 22), (207, 40)])
def test_what_joins_processors_goes_by_their_model(model: int, rate: int) -> None:
    topology = read(_xml(_cpu(_gpu(0), 0, model), _cpu("", 1, model)), "intel.xml")
    assert topology.links_between(1, 2)[0].bandwidth == rate * GIGA


def test_without_gpus_the_processors_are_the_ranks() -> None:
    topology = read(_xml(_cpu("", 0), _cpu("", 1)), "cpus.xml")
    assert (topology.ranks, len(topology.links)) == (2, 2)
    assert topology.about == "no GPU, no NIC, 2 NUMA nodes"


# Damage -------------------------------------------------------------------------------------------------------------

WHOLE = _xml(
    _cpu(_pci("0000:41:00.0", "0x060400", _gpu(0, _nvlink(_bus(1), 2) + '<c2c bw="1" count="1"/>') + _gpu(1))),
    _cpu(_pci("0000:61:00.0", "0x020700", '<nic>\n<net name="mlx5_0" dev="0" speed="100000"/>\n</nic>'), 1),
    _cpu(_gpu(2, '<nvlink target="0000:c1:00.0" count="6" tclass="0x068000"/>'), 2),
).decode()


def _sentence(content: bytes) -> str | None:
    try:
        read(content, "m.xml")
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text.replace('version="1"', 'version="7"'), 'm.xml:1: <system>: version="7" is not known'),
        (lambda text: text.replace(' version="1"', ""), "m.xml:1: <system>: attribute 'version' is missing"),
        (lambda text: text.replace("system", "topology"), "m.xml:1: <topology>: an NCCL topology file begins with"),
        (lambda text: text.replace('numaid="1"', 'numaid="0"'), 'm.xml:15: <cpu>: numaid="0" occurs twice, first on'),
        (lambda text: text.replace('numaid="0"', 'numaid="x"'), 'm.xml:2: <cpu>: numaid="x" is not an integer'),
        (lambda text: text.replace('numaid="0"', 'numaid="-2"'), 'm.xml:2: <cpu>: numaid="-2" must be at least -1'),
        (lambda text: text.replace('modelid="85"', 'modelid="8e5"'), 'm.xml:2: <cpu>: modelid="8e5" is not an integer'),
        (lambda text: text.replace("0000:41:00.0", "0000:41:00"), 'm.xml:3: <pci>: busid="0000:41:00" is not a PCI'),
        (lambda text: text.replace('busid="0000:41:00.0" ', ""), "m.xml:3: <pci>: attribute 'busid' is missing"),
        (lambda text: text.replace("0000:41:00.0", _bus(0)), f'm.xml:4: <pci>: busid="{_bus(0)}" occurs twice, first'),
        (lambda text: text.replace("0x060400", "bridge"), 'm.xml:3: <pci>: class="bridge" is not a PCI class'),
        (lambda text: text.replace("8.0 GT/s PCIe", "9 GT/s", 1), 'm.xml:3: <pci>: link_speed="9 GT/s": it must be'),
        (lambda text: text.replace('width="16"', 'width="64"', 1), 'm.xml:3: <pci>: link_width="64": PCI Express has'),
        (lambda text: text.replace('width="16"', 'width="x"', 1), 'm.xml:3: <pci>: link_width="x" is not an integer'),
        (lambda text: text.replace('rank="1"', 'rank="0"'), 'm.xml:10: <gpu>: rank="0" occurs twice, first on line 5'),
        (lambda text: text.replace('rank="0"', 'rank="-1"'), 'm.xml:5: <gpu>: rank="-1" must be at least 0'),
        (lambda text: text.replace('sm="70" rank="0"', 'rank="0"'), "m.xml:5: <gpu>: attribute 'sm' is missing"),
        (lambda text: text.replace('count="2" ', ""), "m.xml:6: <nvlink>: attribute 'count' is missing"),
        (lambda text: text.replace('count="2"', 'count="two"'), 'm.xml:6: <nvlink>: count="two" is not an integer'),
        (lambda text: text.replace('count="2"', f'count="{"9" * 30}"'), 'm.xml:6: <nvlink>: count="999999999'),
        (lambda text: text.replace(f'target="{_bus(1)}"', 'target="gpu1"'), 'm.xml:6: <nvlink>: target="gpu1" is not'),
        (lambda text: text.replace(f'target="{_bus(1)}"', f'target="{_bus(0)}"'), "m.xml:6: <nvlink>: target="),
        (lambda text: text.replace('tclass="0x030200"', 'tclass="0x0c"'), 'm.xml:6: <nvlink>: tclass="0x0c" is not'),
        (lambda text: text.replace('bw="1"', 'bw="0"'), 'm.xml:7: <c2c>: bw="0" must be at least 1'),
        (lambda text: text.replace('speed="100000"', 'speed="fast"'), 'm.xml:18: <net>: speed="fast" is not an'),
        (lambda text: text.replace("mlx5_0", "&#8203;"), 'm.xml:18: <net>: name="?" is not printable'),
        (lambda text: text.replace("<nic>", "<nick>").replace("</nic>", "</nick>"), "m.xml:17: <nick>: is not known"),
        (lambda text: text.replace("<nic>", "8 GPUs <nic>"), "m.xml:16: <pci>: holds the text '8 GPUs'"),
        (lambda text: "<system version='1'></system>", "m.xml:1: <system>: it has neither GPU nor NUMA"),
        (lambda text: "", "m.xml:1: not well-formed XML: no element found"),
        (lambda text: text[: len(text) // 2], "not well-formed XML"),
        (lambda text: '<!DOCTYPE s [<!ENTITY a "b">]>' + text, "a document type declaration is not allowed"),
        (lambda text: '<!DOCTYPE s SYSTEM "file:///etc/passwd">' + text, "a document type declaration is not allowed"),
        (lambda text: text.replace("mlx5_0", "&passwd;"), "m.xml:18: not well-formed XML: undefined entity"),
        (lambda text: '<?xml version="1.0" encoding="gb2312"?>' + text, "m.xml:1: not readable XML"),
        (lambda text: '<?xml version="1.0" encoding="none"?>' + text, "m.xml:1: not readable XML: unknown encoding"),
        (lambda text: "<a>" * 100_000, "m.xml:1: <a>: elements are nested more than 100 deep"),
        (lambda text: f'<system version="1">{"<cpu/>" * 300}</system>', "m.xml:1: <system>: more than 256 NUMA nodes"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_refused_with_line_and_attribute(change: Callable[[str], str], sentence: str) -> None:
    assert _sentence(WHOLE.encode()) is None
    told = _sentence(change(WHOLE).encode())
    assert told is not None
    assert sentence in told
    assert "\n" not in told


def test_entities_that_grow_are_refused_before_they_grow() -> None:
    grown = [f"&e{n - 1};" * 10 for n in range(30)]
    bomb = "".join(f'<!ENTITY e{n} "{grown[n]}">' for n in range(1, 30))
    told = _sentence(f'<!DOCTYPE s [<!ENTITY e0 "x">{bomb}]><system version="&e29;"/>'.encode())
    assert told == "m.xml:1: a document type declaration is not allowed; remove it"


_ATTRIBUTE = re.compile(r' ([a-z_]+)="([^"]*)"')
_VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1", "x", "0x03", "9" * 25, "0000:10:00.0", "16 GT/s", "nan", "&#0;", "<", "\u200b"]
    ),
    st.text(max_size=5),
)


def _one_sentence(content: bytes) -> None:
    told = _sentence(content)
    assert told is None or re.match(r"m\.xml:\d+: ", told), told
    assert told is None or "\n" not in told


@examples(300)
@given(st.data())
def test_altered_attributes_give_a_machine_or_a_sentence_with_its_line(data: st.DataObject) -> None:
    text = WHOLE
    for _ in range(data.draw(st.integers(1, 3))):
        found = data.draw(st.sampled_from(list(_ATTRIBUTE.finditer(text)) or [None]))
        if found is not None:
            new = data.draw(st.none() | _VALUES)
            changed = "" if new is None else f' {found.group(1)}="{new}"'
            text = text[: found.start()] + changed + text[found.end() :]
    _one_sentence(text.encode("utf-8", "surrogatepass"))


def test_every_attribute_may_be_missing_or_nonsense() -> None:
    outcomes = Counter()
    for found in _ATTRIBUTE.finditer(WHOLE):
        for new in ("", f' {found.group(1)}="?"'):
            content = (WHOLE[: found.start()] + new + WHOLE[found.end() :]).encode()
            _one_sentence(content)
            outcomes[_sentence(content) is None] += 1
    assert outcomes[False] > 40  # most attributes matter


def test_truncation_anywhere_is_a_sentence() -> None:
    for length in range(len(WHOLE.rstrip())):
        told = _sentence(WHOLE[:length].encode())
        assert told is not None
        assert re.match(r"m\.xml:\d+: ", told)


def test_lines_lost_doubled_or_swapped_give_a_machine_or_a_sentence() -> None:
    seed = 20261121
    print(f"seed {seed}")
    chance = random.Random(seed)
    lines = WHOLE.splitlines(keepends=True)
    for _ in range(400):
        damaged = list(lines)
        for _ in range(chance.randint(1, 4)):
            one, other = chance.randrange(len(damaged)), chance.randrange(len(damaged))
            match chance.randrange(3):
                case 0:
                    damaged.pop(one)
                case 1:
                    damaged.insert(other, damaged[one])
                case _:
                    damaged[one], damaged[other] = damaged[other], damaged[one]
        _one_sentence("".join(damaged).encode())
    for _ in range(400):
        flipped = bytearray(WHOLE.encode())
        flipped[chance.randrange(len(flipped))] = chance.randrange(256)
        _one_sentence(bytes(flipped))


@pytest.mark.parametrize("name", MACHINES)
def test_damage_to_a_shared_file_is_a_machine_or_a_sentence(name: str) -> None:
    seed = 20261121
    print(f"seed {seed}")
    chance = random.Random(seed)
    text = _foreign(name).decode()
    places = [found.span(2) for found in _ATTRIBUTE.finditer(text)]
    for _ in range(25):
        start, end = chance.choice(places)
        _one_sentence((text[:start] + chance.choice(["", "x", "-1", "0x1", "9" * 30]) + text[end:]).encode())
        _one_sentence(text[: chance.randrange(len(text))].encode())
