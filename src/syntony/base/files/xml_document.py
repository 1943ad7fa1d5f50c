"""XML with line numbers and readable errors.

Reads elements and attributes; text is refused unless the caller names the elements that may hold it. A document type
declaration can define entities that grow without bound or fetch other files, so it is refused. A format whose files all
carry one (lstopo's) may allow the bare declaration, which defines nothing here; nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from syntony.base.command import UserError

_DEEPEST = 100  # levels of nesting; machines and programs need about twenty, and readers recurse


class XmlError(UserError):
    """A malformed file: names the file, line and element, and what would be right."""


@dataclass(frozen=True)
class Element:
    """One element and its position; accessors raise XmlError. `pieces` is its text, in pieces."""

    file: str
    line: int
    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

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
            self.refuse(f'{name}="{shortened(text)}" is not an integer')
        if abs(value) >= 2**63:
            self.refuse(f'{name}="{shortened(text)}" does not fit into 64 bits')
        if least is not None and value < least:
            self.refuse(f'{name}="{text}" must be at least {least}')
        return value

    def only(self, *tags: str) -> list[Element]:
        """The children, all of which must have one of the tags."""
        for child in self.children:
            if child.tag not in tags:
                child.refuse(f"is not known inside <{self.tag}>; expected {' or '.join(f'<{tag}>' for tag in tags)}")
        return self.children


def shortened(text: str) -> str:
    """An attribute's value for use in a message: one line of at most 40 characters."""
    line = "".join(character if character.isprintable() else "?" for character in text[:41])
    return line if len(line) <= 40 else line[:37] + "..."


def parse(content: bytes, file: str, *, text_in: Collection[str] = (), doctype: bool = False) -> Element:
    """The root element of a document.

    `text_in`: the tags that may hold text. `doctype`: whether a declaration that defines nothing may stand at the top.
    """
    parser = expat.ParserCreate()
    root: list[Element] = []
    path: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(file, parser.CurrentLineNumber, tag, attributes)
        if len(path) == _DEEPEST:
            element.refuse(f"elements are nested more than {_DEEPEST} deep")
        (path[-1].children if path else root).append(element)
        path.append(element)

    def end(_: str) -> None:
        path.pop()

    def declared(_name: str, _system: str | None, _public: str | None, has_definitions: bool) -> None:
        if has_definitions or not doctype:
            raise XmlError(f"{file}:{parser.CurrentLineNumber}: a document type declaration is not allowed; remove it")

    def text(data: str) -> None:
        if path and path[-1].tag in text_in:
            path[-1].pieces.append(data)
        elif path and data.strip():
            path[-1].refuse(f"holds the text '{shortened(data.strip())}'; only elements and attributes are expected")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler, parser.CharacterDataHandler = declared, text
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise XmlError(f"{file}:{error.lineno}: not well-formed XML: {what}, column {error.offset + 1}") from error
    except UserError:
        raise
    except (ValueError, LookupError) as error:  # raised by Python for an encoding that it cannot decode
        raise XmlError(f"{file}:1: not readable XML: {error}; write it in UTF-8") from error
    return root[0]


def read(path: Path) -> Element:
    """The root element of a file."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise XmlError(f"{path}: cannot be read: {error.strerror}") from error
