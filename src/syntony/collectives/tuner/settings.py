"""The user's settings for the choice of algorithms, in the environment and in a file.

SYNTONY_ALGO    rules (grammar.py); they take precedence over the file's
SYNTONY_CONFIG  a TOML file:
                    tune = "probe"                             as SYNTONY_TUNE, which takes precedence
                    algo = "all_reduce:mine<=1M,ring"          as SYNTONY_ALGO
                    schedules.mine = "all_reduce.json"         names for schedule, portfolio and Program files,
                                                               relative to this file or absolute
SYNTONY_TUNE    cache   (default) use the table written by `syntony tune`, if there is one; never measure
                probe   like cache; without a table, measure for some seconds when a group is made, and write one
                off     only built-in choices
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from syntony import _core
from syntony.base.command import UserError
from syntony.base.files.text_file import parse_toml, read_text
from syntony.collectives.tuner import grammar
from syntony.collectives.tuner.grammar import AUTO, Rule

MODES = ("cache", "probe", "off")


@dataclass(frozen=True)
class Said:
    """The value of a variable, as shown and as compared: it must be the same on all ranks."""

    variable: str
    shown: str
    compared: str


@dataclass(frozen=True)
class Settings:
    """`rules`: by collective, with their source; `schedules`: the files by name."""

    mode: str = "cache"
    rules: Mapping[str, tuple[Rule, str]] = field(default_factory=dict)
    schedules: Mapping[str, Path] = field(default_factory=dict)
    said: tuple[Said, ...] = ()


@lru_cache(maxsize=1)
def algorithms() -> dict[str, tuple[str, ...]]:
    """The valid algorithm names, by collective."""
    collectives = dict.fromkeys(name for entry in _core.algorithms() for name in entry.collectives)
    return {collective: tuple(_core.algorithm_names(collective)) for collective in collectives}


def self_sufficient(collective: str) -> list[str]:
    """The algorithms of the collective that need only the group, no aggregator."""
    return [name for name in algorithms()[collective] if name != "in_network"]


def read(environment: Mapping[str, str]) -> Settings:
    """Raises UserError that names the variable or the file, and the position in it."""
    mode, schedules, rules, said = "cache", {}, {}, []
    path = environment.get("SYNTONY_CONFIG", "")
    if path:
        text = read_text(path)
        document = parse_toml(text, path)
        schedules = _schedules(document.pop("schedules", {}), Path(path))
        digest = hashlib.sha256(text.encode())
        for name, file in schedules.items():
            digest.update(name.encode() + b"\0" + _bytes(file))
        said.append(Said("SYNTONY_CONFIG", path, digest.hexdigest()[:16]))
        mode = _mode(document.pop("tune", mode), path)
        rules = _rules(document.pop("algo", ""), f"{path}: algo", schedules, f"SYNTONY_CONFIG={path}")
        for key in document:
            raise UserError(f'{path}: the key "{key}" means nothing here; there are tune, algo and schedules')
    text = environment.get("SYNTONY_ALGO", "")
    if text:
        said.append(Said("SYNTONY_ALGO", text, text))
        rules |= _rules(text, "SYNTONY_ALGO", schedules, "SYNTONY_ALGO")
    chosen = environment.get("SYNTONY_TUNE", "")
    if chosen:
        mode = _mode(chosen, "SYNTONY_TUNE")
        said.append(Said("SYNTONY_TUNE", mode, mode))
    return Settings(mode, rules, schedules, tuple(said))


def _rules(text: object, where: str, schedules: Mapping[str, Path], who: str) -> dict[str, tuple[Rule, str]]:
    if not isinstance(text, str):
        raise UserError(f'{where} must be a string such as "all_reduce:ring"')
    known = {collective: (*names, *schedules) for collective, names in algorithms().items()}
    rules = grammar.parse(text, where, known)
    return {collective: (rule, who) for rule in rules for collective in rule.collectives}


def _mode(value: object, where: str) -> str:
    if value not in MODES:
        raise UserError(f"{where}: tune is one of {', '.join(MODES)}, not {value!r}")
    return str(value)


def _schedules(entries: object, path: Path) -> dict[str, Path]:
    if not isinstance(entries, dict):
        raise UserError(f'{path}: schedules must be a table of names and files, such as schedules.mine = "F.json"')
    builders = {name for names in algorithms().values() for name in names} | {AUTO}
    for name, file in entries.items():
        if name in builders or not name.replace("_", "").replace("-", "").isalnum():
            raise UserError(f'{path}: schedules: "{name}" must be letters, digits, - and _, and no algorithm of ours')
        if not isinstance(file, str):
            raise UserError(f"{path}: schedules.{name} must be the name of a file, not {file!r}")
    return {name: path.parent / file for name, file in entries.items()}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
