"""XML with line numbers and with errors for people.

Reads elements and attributes only. Document type declarations are refused: they can define entities that grow without
bound, and no schedule needs one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from topologies.command import UserError


class XmlError(UserError):
    """A malformed file: which file, line and element, and what would be right."""


@dataclass(frozen=True)
class Element:
    """One element with where it stands; accessors raise XmlError."""

    file: str
    line: int
    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    def refuse(self, message: str) -> NoReturn:
        """Raises XmlError at this element."""
        raise XmlError(f"{self.file}:{self.line}: <{self.tag}>: {message}")

    def text(self, name: str, default: str | None = None) -> str:
        """An attribute."""
        value = self.attributes.get(name, default)
        if value is None:
            self.refuse(f"attribute '{name}' is missing")
        return value

    def integer(self, name: str, default: int | None = None, least: int | None = None) -> int:
        """An attribute that is a decimal integer, at least `least`."""
        text = self.text(name, None if default is None else str(default))
        try:
            value = int(text)
        except ValueError:
            self.refuse(f'{name}="{text}" is not an integer')
        if abs(value) >= 2**63:
            self.refuse(f'{name}="{text}" does not fit into 64 bits')
        if least is not None and value < least:
            self.refuse(f'{name}="{text}" must be at least {least}')
        return value

    def only(self, *tags: str) -> list[Element]:
        """The children, all of which must have one of the tags."""
        for child in self.children:
            if child.tag not in tags:
                child.refuse(f"is not known inside <{self.tag}>; expected {' or '.join(f'<{tag}>' for tag in tags)}")
        return self.children


def parse(content: bytes, file: str) -> Element:
    """The root element of a document."""
    parser = expat.ParserCreate()
    root: list[Element] = []
    path: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(file, parser.CurrentLineNumber, tag, attributes)
        (path[-1].children if path else root).append(element)
        path.append(element)

    def end(_: str) -> None:
        path.pop()

    def doctype(*_: object) -> None:
        raise XmlError(f"{file}:{parser.CurrentLineNumber}: a document type declaration is not allowed; remove it")

    def text(data: str) -> None:
        if path and data.strip():
            path[-1].refuse(f"holds the text '{data.strip()[:20]}'; only elements and attributes are expected")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler, parser.CharacterDataHandler = doctype, text
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise XmlError(f"{file}:{error.lineno}: not well-formed XML: {what}, column {error.offset + 1}") from error
    return root[0]


def read(path: Path) -> Element:
    """The root element of a file."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise XmlError(f"{path}: cannot be read: {error.strerror}") from error
