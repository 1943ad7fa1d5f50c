"""What the site has beside the pages of docs/: pages generated from the code, and those at the top of the repository.

Links out of docs/ (to the sources, to README.md) lead to the page of the site, or else are written as plain text.
Where a page of docs/ shows a picture of a page of `syntony view`, the site shows that page itself, made with the site.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
TOP = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changes.md"}
LIVE = {
    "view-schedule": ["synth dgx1 all_gather --size 64M --engine forest -o s.json", "view s.json -o PAGE"],
    "view-step": [
        *(
            f"overlap plan --model thin --layout pp=2,dp=2,microbatches=4 --policy {policy} -o {policy}.json"
            for policy in ("serial", "fifo", "need", "zero_bubble")
        ),
        "view serial.json fifo.json need.json zero_bubble.json -o PAGE",
    ],
}
"""By the name of a picture in docs/pictures, the commands that make the page that it shows."""
_PICTURE = re.compile(r'<img alt="([^"]*)" src="[^"]*?([\w-]+)\.png"[^>]*>')
_PIECES = re.compile(
    r'</pre>\s*</div>\s*</div>\s*<div class="jp-OutputArea-child">\s*<div class="jp-OutputPrompt jp-OutputArea-prompt">'
    r'</div>\s*<div class="jp-RenderedText jp-OutputArea-output" data-mime-type="text/plain" tabindex="0">\s*<pre>'
)  # between the pieces in which IPython's %%bash hands on what a command prints
_ESCAPE = re.compile(r"\x1b((?:<[^>]*>)*)\[[\d;]*m")  # broken between two pieces, so that nothing came of it
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages, and what is alive on them."""
    generated = {"help.md": _help(), "api.md": _api(), "glossary.md": _glossary()}
    for name, page in TOP.items():
        generated[page] = (ROOT / name).read_text()
    for page, text in generated.items():
        files.append(File.generated(config, page, content=text))
    for name, commands in LIVE.items():
        files.append(File.generated(config, f"live/{name}.html", content=_made(commands)))
    return files


def _made(commands: list[str]) -> str:
    """The page that the last command writes to PAGE."""
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            words = command.replace("PAGE", "page.html").split()
            subprocess.run([sys.executable, "-m", "syntony", *words], cwd=folder, check=True, capture_output=True)
        return (Path(folder) / "page.html").read_text()


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrites the links of a page for the site."""
    origin = next((name for name, made in TOP.items() if made == page.file.src_uri), "")
    folder = ROOT if origin else (ROOT / "docs" / page.file.src_uri).parent
    depth = page.file.src_uri.count("/")

    def rewritten(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        place, _, anchor = target.partition("#")
        if "://" in target or not place:
            return found.group()
        path = (folder / place).resolve()
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
        uri = TOP.get(name) or name.removeprefix("docs/") * name.startswith("docs/")
        if not uri:
            return f"{words} (`{name}`)" if words.strip("`") != name else f"`{name}`"
        return f"{mark}[{words}]({'../' * depth}{uri}{'#' + anchor if anchor else ''})"

    return _LINK.sub(rewritten, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Puts live pages in the place of their pictures; in notebooks, whose text mkdocs does not see, joins what a
    command prints and mends links (those out of docs/ lose their target)."""

    def framed(found: re.Match[str]) -> str:
        words, name = found.groups()
        if name not in LIVE:
            return found.group()
        target = files.get_file_from_path(f"live/{name}.html")
        assert target is not None
        address = target.url_relative_to(page.file)
        return (
            f'<iframe title="{words}" src="{address}" loading="lazy" style="width:100%;height:760px;border:0"></iframe>'
            f'<br><a href="{address}">On a page of its own</a>'
        )

    def mended(found: re.Match[str]) -> str:
        place, anchor = found.groups()
        path = (ROOT / "docs" / page.file.src_uri).parent.joinpath(place).resolve()
        name = str(path.relative_to(ROOT))
        target = files.get_file_from_path(TOP.get(name) or name.removeprefix("docs/"))
        return f'href="{target.url_relative_to(page.file)}{anchor or ""}"' if target else ""

    if page.file.src_uri.endswith(".ipynb"):
        html = _ESCAPE.sub(r"\1", _PIECES.sub("", html))
        return re.sub(r'href="((?:\.\./|\w)[^":#]*\.\w+)(#[^"]*)?"', mended, html)
    return _PICTURE.sub(framed, html)


def _help() -> str:
    from syntony.commands import all_commands
    from syntony.parser import parser_of

    parts = ["# Help of every command\n\nWhat `syntony COMMAND --help` prints."]
    for command in all_commands():
        parser: argparse.ArgumentParser = parser_of(command)
        parts.append(f"## syntony {' '.join(command.name)}\n\n```text\n{parser.format_help().rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _api() -> str:
    import syntony

    homes: dict[str, str] = syntony._HOMES
    parts = ["# Python\n\nThe names of `import syntony`, from their docstrings."]
    for name in sorted(set(syntony.__all__) - {"__version__"}, key=str.lower):
        module, _, there = homes[name].partition(":")
        if module.startswith("_"):
            parts.append(f"## `{name}`\n\n{(getattr(syntony, name).__doc__ or '').strip()}")
        else:
            parts.append(f"::: syntony.{module}.{there or name}\n    options:\n      heading: syntony.{name}")
    return "\n\n".join(parts) + "\n"


def _glossary() -> str:
    """The tables of words in ARCHITECTURE.md and docs/inside.md as one: one source for both."""
    text, inside = ((ROOT / page).read_text() for page in ("ARCHITECTURE.md", "docs/inside.md"))
    words = text[text.index("## The words") : text.index("## Three journeys")]
    others = inside[inside.index("## The other words") : inside.index("## The engines")]
    head, *rows = (line for table in (words, others) for line in table.splitlines() if line.startswith("| "))
    return "\n".join(["# Glossary\n", head, "|---|---|---|", *(row for row in rows if row != head)]) + "\n"
