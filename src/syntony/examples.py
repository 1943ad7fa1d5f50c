"""`syntony examples`: shows and copies the algorithms, configurations and jobs that come with the package."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass

from syntony.base.answer import tell
from syntony.base.command import Command, UserError
from syntony.base.files.whole_file import write_text
from syntony.base.outputs import add_output, wrote
from syntony.base.wording import unknown


@dataclass(frozen=True)
class Example:
    """`command` runs the example from any folder; `text` is the whole file."""

    name: str
    command: str
    about: str
    ending: str
    text: str


def examples() -> Iterator[Example]:
    """All examples."""
    from syntony.synth.dsl.script import EXAMPLES
    from syntony.synth.formats.jobs_file import EXAMPLE
    from syntony.trainer.config import BUNDLED

    for name, path in EXAMPLES.items():
        text = path.read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
        yield Example(name, f"syntony compile {name}", about, ".py", text)
    for name, path in BUNDLED.items():
        text = path.read_text(encoding="utf-8")
        yield Example(name, f"syntony train {name}", text.splitlines()[0].lstrip("# "), ".toml", text)
    about = "Two jobs that share the links of a Clos network."
    yield Example("jobs", "syntony traffic example", about, ".toml", EXAMPLE)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this one, or write it with -o")
    add_output(parser, "-o", "--output", metavar="F", help="copy it here, to change it")


def _run(options: argparse.Namespace) -> int:
    found = {example.name: example for example in examples()}
    if options.name is None:
        if options.output is not None:
            raise UserError(f"-o {options.output}: name the example to write; there are {', '.join(found)}")
        lines = [line for one in found.values() for line in (f"{one.name:<22}{one.command}", f"    {one.about}")]
        rows = [{"name": one.name, "command": one.command, "about": one.about} for one in found.values()]
        tell(options, {"examples": rows}, [*lines, "", "`syntony examples NAME` prints one, -o F copies it."])
        return 0
    if options.name not in found:
        raise UserError(unknown("example", options.name, found))
    one = found[options.name]
    told = {"name": one.name, "command": one.command, "about": one.about, "text": one.text}
    if options.output is None:
        tell(options, told | {"file": None}, [one.text.rstrip("\n")])
        return 0
    write_text(options.output, one.text)
    tell(options, told | {"file": str(options.output)}, [wrote(options.output)])
    return 0


COMMANDS = (
    Command(
        name=("examples",),
        summary="list or copy the bundled algorithms, configurations and jobs",
        example="syntony examples ring",
        configure=_configure,
        run=_run,
    ),
)
