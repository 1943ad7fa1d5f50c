"""What the site has beside the pages of docs/: pages generated from the code, and those at the top of the repository.

Links out of docs/ (to the sources, to README.md) lead to the page of the site, or else are written as plain text.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
TOP = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changes.md"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages."""
    generated = {"help.md": _help(), "api.md": _api(), "glossary.md": _glossary()}
    for name, page in TOP.items():
        generated[page] = (ROOT / name).read_text()
    for page, text in generated.items():
        files.append(File.generated(config, page, content=text))
    return files


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
    """The tables under "The words" in ARCHITECTURE.md: one source for both."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    words = text[text.index("## The words") : text.index("## Three journeys")]
    return words.replace("## The words", "# Glossary", 1)
