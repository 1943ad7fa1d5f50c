"""Fields: reads JSON objects strictly, key by key, and explains what is wrong.

Every message names the file, the field with its index, the value found and what would be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.base.files.strict_json import FileError as FileError
from syntony.base.files.strict_json import parse, shown

INT32 = np.iinfo(np.int32)
_Choice = TypeVar("_Choice", bound=str)


def parse_json(text: str, where: str) -> object:
    """The text's value; repeated keys and NaN or infinite numbers are refused. Messages begin with `where`."""
    return parse(text, where, "schedule or program")


class Fields:
    """The keys of one JSON object, taken one by one; `finish` rejects the keys left over.

    `error` is the exception that every method raises; packages with their own exception subclass this.
    """

    error: ClassVar[type[UserError]] = FileError

    def __init__(self, data: object, where: str, path: str = "") -> None:
        self._where, self._path = where, path
        if not isinstance(data, dict):
            raise self.error(f"{where}: {path or 'the file'} is {shown(data)}; it must be an object")
        self._rest: dict[str, Any] = dict(data)
        self._seen: dict[str, Any] = {}

    def wrong(self, key: str, right: str, index: int | None = None) -> UserError:
        """The error to raise: the value at `key` (at `index` of it), and what would be right."""
        value = self._seen[key] if index is None else self._seen[key][index]
        place = self._name(key) if index is None else f"{self._name(key)}[{index}]"
        return self.error(f"{self._where}: {place} is {shown(value)}; {right}")

    def has(self, key: str) -> bool:
        """Whether the key is present and not null."""
        return self._rest.get(key) is not None

    def take(self, key: str, optional: bool = False) -> Any:
        """The value at the key; None if it is optional and absent."""
        if key not in self._rest:
            if optional:
                return None
            raise self.error(f'{self._where}: {self._path or "the file"} has no "{key}"')
        self._seen[key] = self._rest.pop(key)
        return self._seen[key]

    def seen(self, key: str) -> Any:
        """The value of a key that was already taken."""
        return self._seen[key]

    def string(self, key: str, optional: bool = False) -> str:
        """A string; "" if it is optional and absent."""
        value = self.take(key, optional)
        if value is None and optional:
            return ""
        if not isinstance(value, str):
            raise self.wrong(key, "it must be a string")
        return value

    def whole(self, key: str) -> int:
        """A whole number that fits 32 bits."""
        value = self.take(key)
        if type(value) is not int or not INT32.min <= value <= INT32.max:
            raise self.wrong(key, "it must be a whole number")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false if it is absent."""
        value = self.take(key, optional=True)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "it must be true or false")
        return bool(value)

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
            raise self.wrong(key, "it must be a number")
        return float(value)

    def fraction(self, key: str) -> Fraction:
        """An exact fraction, "p/q"."""
        value = self.take(key)
        found = _fraction(value)
        if found is None:
            raise self.wrong(key, 'it must be an exact fraction such as "7/6"')
        return found

    def fractions(self, key: str) -> tuple[Fraction, ...]:
        """A list of exact fractions."""
        found = [_fraction(value) for value in self.rows(key)]
        for index, value in enumerate(found):
            if value is None:
                raise self.wrong(key, 'it must be an exact fraction such as "7/6"', index)
        return tuple(value for value in found if value is not None)

    def choice(self, key: str, choices: Iterable[_Choice]) -> _Choice:
        """One of the given strings."""
        value = self.take(key)
        for known in choices:
            if value == known:
                return known
        raise self.wrong(key, f"it must be one of {', '.join(choices)}")

    def rows(self, key: str, optional: bool = False) -> list[Any]:
        """A list; empty if it is optional and absent."""
        value = self.take(key, optional)
        if value is None and optional:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, "it must be a list")
        return value

    def column(self, key: str) -> NDArray[np.int32]:
        """A list of whole numbers that fit 32 bits."""
        for index, value in enumerate(self.rows(key)):
            if type(value) is not int or not INT32.min <= value <= INT32.max:
                raise self.wrong(key, "it must be a whole number", index)
        return np.asarray(self._seen[key], np.int32)

    def ragged(self, key: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """A list of lists of whole numbers, as offsets and one flat column."""
        rows = self.rows(key)
        for index, row in enumerate(rows):
            if not isinstance(row, list) or not all(
                type(item) is int and INT32.min <= item <= INT32.max for item in row
            ):
                raise self.wrong(key, "it must be a list of whole numbers", index)
        offset = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))
        return offset, np.asarray([item for row in rows for item in row], np.int32)

    def child(self, key: str) -> Self:
        """The object at the key."""
        return type(self)(self.take(key), self._where, self._name(key))

    def children(self, key: str, optional: bool = False) -> Iterator[Self]:
        """The objects of the list at the key."""
        for index, row in enumerate(self.rows(key, optional)):
            yield type(self)(row, self._where, f"{self._name(key)}[{index}]")

    def finish(self) -> None:
        """Rejects keys that were not taken."""
        for key in self._rest:
            known = ", ".join(self._seen)
            raise self.error(f'{self._where}: {self._path or "the file"} has the unknown key "{key}" (known: {known})')

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _fraction(value: object) -> Fraction | None:
    if not isinstance(value, str) or not value.isascii():
        return None
    above, slash, below = value.partition("/")
    if not above.removeprefix("-").isdigit() or not slash or not below.isdigit() or not int(below):
        return None
    return Fraction(int(above), int(below))
