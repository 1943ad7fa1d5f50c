"""`syntony completion SHELL`: a script that completes commands, options and their values, made from the command table.

    bash    eval "$(syntony completion bash)"            in ~/.bashrc
    zsh     eval "$(syntony completion zsh)"             in ~/.zshrc, after compinit
    fish    syntony completion fish | source             in ~/.config/fish/config.fish

The script contains all words, so completion never runs Python.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from syntony.base.answer import tell
from syntony.base.command import Command
from syntony.commands import all_commands
from syntony.parser import parser_of


@dataclass(frozen=True)
class Words:
    """What may follow a command. `options`: each with its help; `values`: the values of an option, if known; `first`:
    the possible first arguments. Everything else is a file."""

    name: str
    summary: str
    options: dict[str, str]
    values: dict[str, tuple[str, ...]]
    first: tuple[str, ...]


def words_of(command: Command) -> Words:
    """The completions of a command, from its parser."""
    options: dict[str, str] = {}
    values: dict[str, tuple[str, ...]] = {}
    first: tuple[str, ...] | None = None
    for action in parser_of(command)._actions:
        if action.help == argparse.SUPPRESS:
            continue
        choices = tuple(map(str, action.choices)) if action.choices else _known(action)
        if not action.option_strings:
            first = choices if first is None else first
            continue
        for flag in action.option_strings:
            options[flag] = " ".join((action.help or "").replace("%%", "%").split())
            if choices:
                values[flag] = choices
    return Words(" ".join(command.name), command.summary, options, values, first or ())


def _known(action: argparse.Action) -> tuple[str, ...]:
    """Values that an argument accepts although its parser does not list them."""
    from syntony.synth.dsl.script import EXAMPLES
    from syntony.synth.engines.registry import ENGINES
    from syntony.synth.model.collective import KINDS
    from syntony.topologies.families import FAMILIES
    from syntony.trainer.config import BUNDLED

    families = tuple(family.example for family in FAMILIES.values())
    names: dict[str, tuple[str, ...]] = {
        "topology": families,
        "on": families,
        "family": tuple(FAMILIES),
        "collective": KINDS,
        "engine": tuple(engine.name for engine in ENGINES),
        "config": tuple(BUNDLED),
        "script": tuple(EXAMPLES),
        "shell": tuple(SHELLS),
    }
    return names.get(action.dest, ())


# ---- bash ------------------------------------------------------------------------------------------------------------

_BASH = """\
_syntony() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} words=""
    local names="{names}"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{verbs} help --help --version" -- "$cur"))
        return
    fi
    [ "$verb" = help ] && {{ COMPREPLY=($(compgen -W "{verbs}" -- "$cur")); return; }}
    if [ "$COMP_CWORD" -ge 2 ]; then
        case "$verb" in
{groups}
        esac
    fi
    case "$verb" in
{commands}
    esac
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
}}
# A name such as torus:4x4 is one word here.
_syntony_whole() {{
    local line=${{COMP_LINE:0:$COMP_POINT}}
    COMP_WORDS=($line)
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    _syntony
    local before=${{COMP_WORDS[COMP_CWORD]}}
    before=${{before%"${{before##*[:=]}}"}}
    [[ $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${{COMPREPLY[@]#"$before"}}")
}}
complete -F _syntony_whole syntony
"""


def bash(commands: Iterable[Words]) -> str:
    """For bash 4 and later."""
    commands = list(commands)
    verbs, groups = _verbs(commands)
    seconds = [
        f'        {verb}) [ "$COMP_CWORD" -eq 2 ] && {{ COMPREPLY=($(compgen -W "{" ".join(rest)}" -- "$cur"));'
        f" [ ${{#COMPREPLY[@]}} -gt 0 ] && return; }}; verb=$verb.${{COMP_WORDS[2]}} ;;"
        for verb, rest in groups.items()
    ]
    cases = []
    for words in commands:
        key = words.name.replace(" ", ".") if words.name.split()[0] in groups else words.name
        key = f"{key}|{key}.*" if key in groups else key
        known = [
            f'            {flag}) COMPREPLY=($(compgen -W "{" ".join(found)}" -- "$cur")); return ;;'
            for flag, found in words.values.items()
        ]
        flags = " ".join(words.options)
        lines = ['        case "$prev" in', *known, "        esac"] if known else []
        lines.append(f'        case "$cur" in -*) COMPREPLY=($(compgen -W "{flags}" -- "$cur")); return ;; esac')
        if words.first:
            at = 1 + len(words.name.split())
            lines.append(
                f'        [ "$COMP_CWORD" -eq {at} ] && {{ COMPREPLY=($(compgen -W "{" ".join(words.first)}" -f -- '
                '"$cur")); return; }'
            )
        cases.append("\n".join([f"    {key})", *lines, "        ;;"]))
    names = " ".join(words.name.replace(" ", ".") for words in commands)
    cases.sort(key=lambda case: "|" in case)  # match `lab list` before the pattern of `lab` followed by anything
    return _BASH.format(names=names, verbs=" ".join(verbs), groups="\n".join(seconds), commands="\n".join(cases))


# ---- zsh -------------------------------------------------------------------------------------------------------------


def zsh(commands: Iterable[Words]) -> str:
    """The bash script, run through zsh's emulation of `complete`."""
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash(commands)


# ---- fish ------------------------------------------------------------------------------------------------------------


def fish(commands: Iterable[Words]) -> str:
    """One line per word."""
    commands = list(commands)
    verbs, groups = _verbs(commands)
    lines = ["function __syntony_at", "    set -l words (commandline -opc)", "    set -e words[1]",
             "    set -l many (count $argv)",
             '    test (count $words) -ge $many; and test "$words[1..$many]" = "$argv"', "end"]  # fmt: skip
    about = {words.name: words.summary for words in commands}
    for verb in verbs:
        told = about.get(verb, ", ".join(groups.get(verb, ())))
        lines.append(f"complete -c syntony -n __fish_use_subcommand -f -a {verb} -d {shlex.quote(told)}")
    lines.append(f"complete -c syntony -n '__syntony_at help' -f -a {shlex.quote(' '.join(verbs))}")
    for verb, rest in groups.items():
        for word in rest:
            told = about[f"{verb} {word}"]
            lines.append(
                f"complete -c syntony -n '__syntony_at {verb}; and test (count (commandline -opc)) -eq 2' "
                f"-a {word} -d {shlex.quote(told)}"
            )
    for words in commands:
        here = f"complete -c syntony -n '__syntony_at {words.name}'"
        for flag, told in words.options.items():
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            found = words.values.get(flag)
            takes = f" -x -a {shlex.quote(' '.join(found))}" if found else ""
            lines.append(f"{here} {kind} -d {shlex.quote(_short(told))}{takes}")
        if words.first:
            lines.append(f"{here} -a {shlex.quote(' '.join(words.first))}")
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _verbs(commands: Iterable[Words]) -> tuple[list[str], dict[str, list[str]]]:
    """The first words of all commands, and the second words by first word."""
    groups: dict[str, list[str]] = {}
    verbs = dict.fromkeys(words.name.split()[0] for words in commands)
    for words in commands:
        first, _, second = words.name.partition(" ")
        if second:
            groups.setdefault(first, []).append(second)
    return list(verbs), groups


SHELLS: dict[str, Callable[[Iterable[Words]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=", ".join(SHELLS))
    parser.description = f"{parser.description}\n\n{_USE}"


_USE = """\
Add this line to your shell's startup file:
  bash  eval "$(syntony completion bash)"   in ~/.bashrc
  zsh   eval "$(syntony completion zsh)"    in ~/.zshrc, after compinit
  fish  syntony completion fish | source    in ~/.config/fish/config.fish"""


def _run(options: argparse.Namespace) -> int:
    script = SHELLS[options.shell](map(words_of, all_commands()))
    if options.json:
        tell(options, {"shell": options.shell, "script": script}, [])
    else:
        print(script, end="")  # read by a shell: not wrapped to the terminal's width
    return 0


COMMANDS = (
    Command(
        name=("completion",),
        summary="print a script that completes commands and options in bash, zsh or fish",
        example="syntony completion bash",
        configure=_configure,
        run=_run,
    ),
)
