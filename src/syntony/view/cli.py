"""The command `syntony view`: shows files as one page, or as a picture."""

from __future__ import annotations

import argparse
import webbrowser

from syntony.base.answer import tell
from syntony.base.arguments import count, size
from syntony.base.command import Command, UserError
from syntony.base.files.whole_file import write_bytes, write_text
from syntony.base.outputs import add_output, wrote

PICTURES = (".svg", ".pdf", ".png")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="what to see: any file of the kinds that --kinds lists, "
        "the name of a topology, or a folder of records (SYNTONY_TRACE_DIR)",
    )
    add_output(
        parser,
        "-o",
        "--output",
        metavar="F",
        endings=(".html", *PICTURES),
        what="a page or a picture",
        help="F.html for a page, F.svg, F.pdf or F.png for a picture of one panel",
    )
    parser.add_argument(
        "--panel",
        metavar="TITLE",
        help="panel to draw in a picture, by the beginning of its title (default: the first)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument(
        "--serve",
        nargs="?",
        type=count,
        const=0,
        metavar="PORT",
        help="serve the page to this machine until Ctrl-C; it follows changes of the files (default port: a free one)",
    )
    parser.add_argument(
        "--size",
        type=size,
        default=1 << 26,
        metavar="BYTES",
        help="message size for which schedules are simulated (default 64M)",
    )
    parser.add_argument(
        "--topology",
        metavar="T",
        help="topology of a program, whose file names none; of bench results, to show their limit",
    )
    parser.add_argument(
        "--machine",
        default="cpu",
        metavar="NAME[:K=V,..]",
        help="hardware for which the plan of a training step is predicted (see `overlap plan`)",
    )
    parser.add_argument(
        "--fifo-depth",
        type=count,
        metavar="N",
        help="prove programs with FIFOs of N messages (default: as many as their files ask for)",
    )
    parser.add_argument("--kinds", action="store_true", help="list the kinds of files that are known, and end")


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.view.kinds import KINDS, Options, views
    from syntony.view.page import page

    if options.kinds:
        told = {"kinds": [{"name": kind.name, "what": kind.what} for kind in KINDS]}
        tell(options, told, [f"  {kind.name:16} {kind.what}" for kind in KINDS])
        return 0
    if not options.files:
        raise UserError("say what to see: a file, or the name of a topology such as dgx1; --kinds lists what is known")
    asked = Options(options.size, options.topology, options.machine, options.fifo_depth)
    if options.serve is not None:
        if options.output is not None:
            raise UserError(f"--serve writes no file; leave out -o {options.output}")
        from syntony.view.serve import serve

        return serve(options.files, asked, options.serve, options.open)
    output = options.output
    if output is None:
        raise UserError("say where to: -o F.html for a page, -o F.svg for a picture, or --serve")
    if options.panel is not None and output.suffix == ".html":
        raise UserError(f"--panel {options.panel}: a page has all panels; a picture, such as -o F.svg, has one")
    with progress("reading and simulating"):
        found = views(options.files, asked)
    shown = [f"{view.kind}: {view.title}: {view.headline}" for view in found]
    if output.suffix in PICTURES:
        from syntony.view.picture import picture

        title, content = picture(found, options.panel, output.suffix)
        write_bytes(output, content)
        shown = [title]
    else:
        write_text(output, page(found))
    shown_views = [
        {"kind": view.kind, "title": view.title, "headline": view.headline, "facts": dict(view.facts)} for view in found
    ]
    tell(options, {"file": str(output), "views": shown_views}, [*shown, wrote(output)])
    if options.open:
        webbrowser.open(output.resolve().as_uri())
    return 0


COMMANDS = (
    Command(
        ("view",),
        "show topologies, schedules, results, training steps and records as a page or a picture",
        "syntony view dgx1 -o dgx1.html",
        _configure,
        _run,
    ),
)
