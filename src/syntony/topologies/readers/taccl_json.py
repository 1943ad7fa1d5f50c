r"""TACCL's topology profile (microsoft/taccl, INPUT_GUIDE.md): one kind of box and how boxes are joined, in JSON.

    "gpus_per_node", "nics_per_node"
    "alpha"                                latency inside, microseconds
    "node_betas_list": [23, 46]            microseconds for one chunk over a link inside: two kinds of link: an NDv2,
    "node_betas_list": [8]                 wired as a DGX-1; one kind: all GPUs on a switch (DGX-2, hub and spoke)
    "links", "betas"                       or matrices [to][from]: how many links, and microseconds ("custom")
    "node_invbws_list", "invbws"           alpha + beta again, truncated to whole numbers
    "remote_alpha", "remote_beta"          the same between boxes, through one NIC; "remote_invbw" is their sum

The file contains neither the number of boxes (TACCL's sketch has it) nor the message size of its betas nor its unit of
time, which is a different multiple of a microsecond in each profile that TACCL ships. So three more keys are read:

    "nnodes"         boxes; default 1
    "chunk_bytes"    default: what the name ends with (`NDv2_32KB`), else 1 MiB
    "microseconds"   in one time unit of the file; default 1

    gpu ──▶ gpu        inside: links, or two cables to the switch with half the alpha each
     ╲
      nic ──▶ network ──▶ nic        between: the NIC's cable to the network has the remote beta and half of its alpha
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any, NoReturn

from syntony.base.files.strict_json import parse, shown
from syntony.base.quantity import size
from syntony.topologies.families.boxes.dgx1 import DGX1_WIRES
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, spread
from syntony.topologies.topology import Topology, TopologyError

_SIZE = re.compile(r"_([0-9]{1,6}[KMG]?B)$")
_MOST_GPUS = 4096
_MOST_FACTOR = 10**12

_KEYS = {
    "name", "gpus_per_node", "nics_per_node", "alpha", "node_betas_list", "node_invbws_list", "links", "betas",
    "invbws", "remote_alpha", "remote_beta", "remote_invbw", "nnodes", "chunk_bytes", "microseconds",
}  # fmt: skip


def recognizes(head: str) -> bool:
    """Whether a file begins like a profile: a JSON object with the number of GPUs."""
    return head.startswith("{") and '"gpus_per_node"' in head


def read(content: bytes, where: str) -> Topology:
    """The boxes as a topology. Raises UserError naming the key."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TopologyError(f"{where}: not a text file: byte {error.start} is not UTF-8") from None
    return _Profile(parse(text, where, "TACCL topology"), where).topology()


class _Profile:
    """Checks the keys of a profile and makes the topology."""

    def __init__(self, data: object, where: str) -> None:
        self._where = where
        if not isinstance(data, dict):
            raise TopologyError(f"{where}: it is {shown(data)}; a TACCL topology is an object")
        self._data: dict[str, Any] = data
        for key in data:
            if key not in _KEYS:
                raise TopologyError(f'{where}: unknown key "{key}"; a TACCL topology has {", ".join(sorted(_KEYS))}')
        name = data.get("name")
        if not isinstance(name, str) or not (name and name.isprintable()):
            self._wrong("name", "it must be a name")
        self._name: str = name
        self._gpus = self._count("gpus_per_node", _MOST_GPUS)
        self._boxes = self._count("nnodes", 1024) if "nnodes" in data else 1
        self._bytes = self._chunk_bytes()
        self._unit = self._number("microseconds") * Fraction(1, 10**6) if "microseconds" in data else Fraction(1, 10**6)
        if not self._unit:
            self._wrong("microseconds", "it must be more than 0")
        self._alpha = self._number("alpha")
        # TACCL's own mark for a box without NICs is -1.
        self._nics = 0 if data.get("nics_per_node", -1) == -1 else self._count("nics_per_node", self._gpus)
        if self._nics:
            self._remote = (self._number("remote_alpha"), self._number("remote_beta"))
            self._check_sum("remote_invbw", self._data.get("remote_invbw"), *self._remote)
        elif self._boxes > 1:
            raise TopologyError(
                f'{where}: "nnodes" is {self._boxes}, but without "nics_per_node" nothing connects the boxes'
            )
        if self._nics and self._gpus % self._nics:
            self._wrong("nics_per_node", f"it must divide the {self._gpus} GPUs")

    def topology(self) -> Topology:
        """The boxes side by side, and a network between them. Symmetry: permute boxes."""
        inside, switched = self._inside()
        wiring = Wiring(self._name)
        width = self._gpus + 1.0
        ranks = [[wiring.rank((b * width + g, 0.0)) for g in range(self._gpus)] for b in range(self._boxes)]
        boxes = [list(gpus) for gpus in ranks]
        for b, gpus in enumerate(ranks):
            if switched is not None:
                name = "switch" if self._boxes == 1 else f"switch{b}"
                switch = wiring.switch(name, (b * width + self._gpus / 2, -2.0))
                boxes[b].append(switch)
                for gpu in gpus:
                    wiring.cable(gpu, switch, switched, self._seconds(self._alpha / 2))
            for src, dst, rate in inside:
                wiring.link(gpus[src], gpus[dst], rate, self._seconds(self._alpha))
        if self._boxes > 1:
            for box, nics in zip(boxes, self._join(wiring, ranks, width), strict=True):
                box += nics
        untold = [] if "microseconds" in self._data else ["its unit taken as 1 us"]
        about = "; ".join([f"from a TACCL profile for chunks of {self._bytes} bytes", *untold])
        built = wiring.topology(swap_and_turn(wiring.size, boxes))
        return replace(built, about=about)

    def _join(self, wiring: Wiring, ranks: list[list[int]], width: float) -> list[list[int]]:
        """Adds NICs and the network; returns the NICs of every box."""
        alpha, beta = self._remote
        rate = self._rate("remote_beta", beta)
        each = self._gpus // self._nics
        nics = [
            [
                wiring.nic(f"nic{b}.{n}", (x, 1.5))
                for n, x in enumerate(spread(b * width, b * width + self._gpus, self._nics))
            ]
            for b in range(self._boxes)
        ]
        network = wiring.switch("network", (width * self._boxes / 2, 4.0))
        for gpus, own in zip(ranks, nics, strict=True):
            for position, gpu in enumerate(gpus):
                wiring.cable(gpu, own[position // each], rate, 0.0)
            for nic in own:
                wiring.cable(nic, network, rate, self._seconds(alpha / 2))
        return nics

    def _inside(self) -> tuple[list[tuple[int, int, Fraction]], Fraction | None]:
        """Links of a box between GPUs, and the rate of a GPU's cable to the switch, if there is one."""
        matrices = [key for key in ("links", "betas", "invbws") if key in self._data]
        if matrices:
            for key in ("node_betas_list", "node_invbws_list"):
                if key in self._data:
                    raise TopologyError(
                        f'{self._where}: "{key}" and "{matrices[0]}" state the same thing; give one of them'
                    )
            return self._custom(), None
        betas = self._numbers("node_betas_list")
        sums = self._numbers("node_invbws_list")
        if len(sums) != len(betas):
            self._wrong("node_invbws_list", f"it must have as many entries as node_betas_list, {len(betas)}")
        for number, (beta, total) in enumerate(zip(betas, sums, strict=True)):
            self._check_sum(f"node_invbws_list[{number}]", float(total), self._alpha, beta)
        rates = [self._rate("node_betas_list", beta) for beta in betas]
        if len(rates) == 1:
            return [], rates[0]
        if len(rates) == 2 and self._gpus == 8:
            return [(src, dst, rates[0] if double else rates[1]) for src, dst, double in DGX1_WIRES], None
        right = (
            "it must have one entry (GPUs on a switch), or two for the 8 GPUs of an NDv2; others give links and betas"
        )
        return self._wrong("node_betas_list", right)

    def _custom(self) -> list[tuple[int, int, Fraction]]:
        links, betas, sums = (self._matrix(key) for key in ("links", "betas", "invbws"))
        found = []
        for dst in range(self._gpus):
            for src in range(self._gpus):
                count = links[dst][src]
                if count.denominator != 1 or count > 64 or (count and src == dst):
                    self._wrong_at(
                        "links", dst, src, "it must be a number of links up to 64, none from a GPU to itself"
                    )
                if count:
                    self._check_sum(f"invbws[{dst}][{src}]", float(sums[dst][src]), self._alpha, betas[dst][src])
                    found += [(src, dst, self._rate(f"betas[{dst}][{src}]", betas[dst][src]))] * int(count)
        return found

    def _chunk_bytes(self) -> int:
        if "chunk_bytes" in self._data:
            return self._count("chunk_bytes", 1 << 40)
        suffix = _SIZE.search(self._name)
        return (size(suffix[1].upper().removesuffix("B")) if suffix else 0) or 1 << 20

    def _seconds(self, units: Fraction) -> float:
        return float(units * self._unit)

    def _rate(self, key: str, beta: Fraction) -> Fraction:
        if not beta:
            raise TopologyError(f"{self._where}: {key} has a beta of 0; a link takes time")
        return self._bytes / (beta * self._unit)

    def _check_sum(self, key: str, total: object, alpha: Fraction, beta: Fraction) -> None:
        """Checks a sum in the file against alpha + beta; they may differ by 1, because the sum is truncated."""
        if total is not None and (not isinstance(total, (int, float)) or abs(float(alpha + beta) - total) > 1):
            raise TopologyError(
                f"{self._where}: {key} is {shown(total)}, but alpha and beta are {float(alpha):g} + {float(beta):g}"
            )

    def _count(self, key: str, most: int) -> int:
        value = self._data.get(key)
        if type(value) is not int or not 1 <= value <= most:
            self._wrong(key, f"it must be a whole number from 1 to {most}")
        return int(value)

    def _number(self, key: str) -> Fraction:
        found = _exact(self._data.get(key))
        if found is None:
            self._wrong(key, f"it must be a number from 0 to {_MOST_FACTOR:.0e}")
        return found

    def _numbers(self, key: str) -> list[Fraction]:
        rows = self._data.get(key)
        found = [_exact(value) for value in rows] if isinstance(rows, list) else [None]
        if not found or None in found:
            self._wrong(key, "it must be a list of numbers")
        return [value for value in found if value is not None]

    def _matrix(self, key: str) -> list[list[Fraction]]:
        rows: Any = self._data.get(key)
        square = isinstance(rows, list) and len(rows) == self._gpus
        if not square or not all(isinstance(row, list) and len(row) == self._gpus for row in rows):
            self._wrong(key, f"it must be {self._gpus} rows of {self._gpus} numbers")
        found = []
        for dst, row in enumerate(rows):
            numbers = [_exact(value) for value in row]
            for src, number in enumerate(numbers):
                if number is None:
                    self._wrong_at(key, dst, src, "it must be a number that is not negative")
            found.append([number for number in numbers if number is not None])
        return found

    def _wrong(self, key: str, right: str) -> NoReturn:
        problem = f"{key} is {shown(self._data[key])}" if key in self._data else f'it has no "{key}"'
        raise TopologyError(f"{self._where}: {problem}; {right}")

    def _wrong_at(self, key: str, dst: int, src: int, right: str) -> NoReturn:
        raise TopologyError(f"{self._where}: {key}[{dst}][{src}] is {shown(self._data[key][dst][src])}; {right}")


def _exact(value: object) -> Fraction | None:
    """A number of the file, exactly as written; None if it is not a number, negative, or absurdly large."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST_FACTOR:
        return None
    return Fraction(str(value))
