"""The tuned table of one kind of group on one kind of machine: the measurements, and the file that keeps them.

    $XDG_CACHE_HOME/syntony/tuning/2x2-4f1c....json       (~/.cache without XDG_CACHE_HOME)

The name has the number of ranks on each host and a digest of everything that affects the times (`Place`); the file
spells it out. JSON, version 1:

    {"format": "syntony-tuning", "version": 1,
     "place": {"processor": "..", "cores": 2, "hosts": [2, 2], "slot_bytes": "", "syntony": "1.0"},
     "levels": [[0, 1, 2, 3], [4, 5, 6]],
     "costs": [{"collective": "all_reduce", "algorithm": "ring", "points": [[8, 3.1e-06], ..]}, ..]}

Points are [bytes, seconds]. `levels`, for groups with one rank per host: the ranks that are near each other
(levels.py); left out if there are none.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from syntony import _core
from syntony.base.files.cache_folder import cache_folder
from syntony.base.files.fields import Fields, FileError, parse_json
from syntony.base.files.text_file import read_text
from syntony.base.files.whole_file import write_bytes
from syntony.base.wording import installed_version
from syntony.collectives.tuner.costs import Costs, Fit, Key, Points, fit, ranges
from syntony.collectives.tuner.grammar import Choice, Rule

FORMAT = "syntony-tuning"
VERSION = 1


@dataclass(frozen=True)
class Place:
    """Everything that affects the times. `hosts`: ranks of each, the largest first; `network`: SYNTONY_NETWORK."""

    processor: str
    cores: int
    hosts: tuple[int, ...]
    slot_bytes: str
    syntony: str
    network: str = ""

    @classmethod
    def here(cls, boxes: Sequence[Sequence[int]]) -> Place:
        """This process's machine, assumed to be the same as all hosts of the group."""
        hosts = tuple(sorted((len(box) for box in boxes), reverse=True))
        cpus = _core.usable_cpus()
        slot_bytes, network = (os.environ.get(name, "") for name in ("SYNTONY_SLOT_BYTES", "SYNTONY_NETWORK"))
        return cls(_processor(), cpus, hosts, slot_bytes, installed_version(), network)

    def document(self) -> dict[str, Any]:
        """As JSON; without a network's name, as before there were any."""
        fields = asdict(self)
        return fields if self.network else {name: value for name, value in fields.items() if name != "network"}

    def path(self) -> Path:
        """The path of its table."""
        ranks = "x".join(map(str, self.hosts)) if len(self.hosts) <= 8 else f"{len(self.hosts)}hosts"
        digest = hashlib.sha256(json.dumps(self.document()).encode()).hexdigest()[:16]
        return cache_folder("tuning") / f"{ranks}-{digest}.json"


@dataclass(frozen=True)
class Table:
    """Measured costs at a place."""

    place: Place
    costs: Costs
    levels: tuple[tuple[int, ...], ...] = ()

    @property
    def collectives(self) -> list[str]:
        """The measured collectives, in the order of the file."""
        return list(dict.fromkeys(key.collective for key in self.costs))

    def points(self, collective: str) -> dict[str, Points]:
        """By algorithm."""
        return {key.algorithm: points for key, points in self.costs.items() if key.collective == collective}

    def fits(self, collective: str) -> dict[str, Fit]:
        """By algorithm."""
        return {name: fit(points) for name, points in self.points(collective).items()}

    def rules(self, excluded: Mapping[str, Collection[str]] | None = None) -> tuple[Rule, ...]:
        """The ranges of each collective, as rules. `excluded`: algorithms that must not be among them."""
        rules = []
        for collective in self.collectives:
            without = (excluded or {}).get(collective, ())
            candidates = {name: one for name, one in self.fits(collective).items() if name not in without}
            if candidates:
                sizes = [size for points in self.points(collective).values() for size in points]
                found = ranges(candidates, sizes)
                rules.append(Rule((collective,), tuple(Choice(name, last) for last, name in found)))
        return tuple(rules)

    def without(self, collectives: Collection[str]) -> Table:
        """The table without the costs of these collectives."""
        costs = {key: points for key, points in self.costs.items() if key.collective not in collectives}
        return replace(self, costs=costs)

    def merged(self, older: Table | None) -> Table:
        """This table, plus the costs in `older` of collectives that this one lacks."""
        kept = {} if older is None else {k: p for k, p in older.costs.items() if k.collective not in self.collectives}
        return replace(self, costs=kept | dict(self.costs))

    def write(self) -> Path:
        """Writes a temporary file and renames it, so that nobody reads a partial file. Raises FileError."""
        path = self.place.path()
        document = {
            "format": FORMAT,
            "version": VERSION,
            "place": self.place.document(),
            **({"levels": self.levels} if self.levels else {}),
            "costs": [
                {"collective": key.collective, "algorithm": key.algorithm, "points": [[s, p[s]] for s in sorted(p)]}
                for key, p in self.costs.items()
            ],
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{path.parent}: cannot be made: {error.strerror}") from None
        write_bytes(path, (json.dumps(document, indent=1) + "\n").encode())
        return path


def load(place: Place) -> Table | None:
    """The table kept for a place; None if there is none. Raises FileError if the file is not a valid table."""
    path = place.path()
    if not path.exists():
        return None
    return _table(Fields(parse_json(read_text(path), str(path)), str(path)), place)


def _table(fields: Fields, place: Place) -> Table:
    if fields.take("format") != FORMAT:
        raise fields.wrong("format", f'it must be "{FORMAT}"')
    if fields.take("version") != VERSION:
        raise fields.wrong("version", f"this program reads version {VERSION}")
    if fields.take("place") != json.loads(json.dumps(place.document())):
        raise fields.wrong("place", "it is not what the file's name says: was it renamed?")
    levels = fields.take("levels", optional=True) or []
    if levels and not _are_levels(levels, sum(place.hosts)):
        raise fields.wrong("levels", "it must be lists that hold each rank once")
    costs = {}
    for row in fields.children("costs"):
        key = Key(row.string("collective"), row.string("algorithm"))
        points = {}
        for index, pair in enumerate(row.rows("points")):
            if not _is_point(pair):
                raise row.wrong("points", "it must be [bytes, seconds], the seconds above 0", index)
            points[pair[0]] = float(pair[1])
        if not points:
            raise row.wrong("points", "there must be at least one")
        row.finish()
        costs[key] = points
    fields.finish()
    return Table(place, costs, tuple(map(tuple, levels)))


def _are_levels(levels: object, ranks: int) -> bool:
    lists = levels if isinstance(levels, list) and all(isinstance(one, list) and one for one in levels) else []
    held = [rank for one in lists for rank in one]
    return all(type(rank) is int for rank in held) and sorted(held) == list(range(ranks))


def _is_point(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and type(pair[0]) is int
        and 0 <= pair[0] < 1 << 62
        and type(pair[1]) in (int, float)
        and 0 < pair[1] < 1e9
    )


@lru_cache(maxsize=1)
def _processor() -> str:
    """The processor's name, as reported by Linux, and its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return " ".join([*names[:1], platform.machine()])
