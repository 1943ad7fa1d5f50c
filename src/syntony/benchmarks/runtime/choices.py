"""Table `choices`: what the runtime chooses by itself, untuned, beside whatever else one could name instead.

    default      what `auto` runs for Communicators and the torch backend, and its time
    best other   the fastest of the other built-in algorithms that have this collective; it met `auto` once more, in
                 turns, for the times that are told
    other/auto   below 1, the other is faster. Where `auto` is more than 10 % behind, the row is marked as missed
    all          every algorithm's time over that of `auto`, from the first run of all in turns

On one host, and between emulated hosts (`syntony lab`, as root), whose cores the ranks share. Results are checked.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

from syntony import _core
from syntony.base.arguments import count, wire_rate
from syntony.base.quantity import bit_rate
from syntony.benchmarks.runtime.measured import in_lab, sweep
from syntony.benchmarks.runtime.measured.choices_rank import AUTO, Compared, Work, compare
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import at_rate, spec_of
from syntony.topologies.parse import parse

LEAST = 0.9
"""Of the best one's speed."""

RATE = "10gbit"
NETWORKS = {
    "star:2": "2 hosts of 1 rank",
    "rail:boxes=2,gpus=2,rails=1": "2 hosts of 2 ranks",
    "star:4": "4 hosts of 1 rank",
    "star:8": "8 hosts of 1 rank",
}


def _on_this_host(ranks: int, work: Work) -> list[Compared]:
    def on_a_rank(exchange: Exchange) -> list[dict[str, object]]:
        return [asdict(one) for one in compare(exchange, work)]

    return [Compared(**one) for one in sweep.answer_of_rank_0(ranks, on_a_rank)]


def _between_hosts(topology: str, rate: str, work: Work) -> list[Compared]:
    with Lab(at_rate(spec_of(parse(topology)), bit_rate(rate))) as lab:
        return [Compared(**one) for one in in_lab.answer_of_rank_0(lab, "choices_rank", asdict(work))]


def _rows(measure: Callable[[Work], Sequence[Compared]], works: Sequence[Work]) -> Iterator[Row]:
    for work in works:
        for found in measure(work):
            yield row(found)


def row(found: Compared) -> Row:
    """One line of the table."""
    auto = found.duel[AUTO]
    other, best = next((name, seconds) for name, seconds in found.duel.items() if name != AUTO)
    missed = f"below {LEAST}" if best / auto < LEAST else ""
    if found.wrong:
        missed = f"{found.wrong} wrong elements"
    times = (found.chosen, f"{1e6 * auto:.1f}", other, f"{1e6 * best:.1f}", f"{best / auto:.2f}")
    in_order = sorted(found.all.items(), key=lambda item: item[1])
    everything = ", ".join(f"{name} {seconds / found.all[AUTO]:.2f}" for name, seconds in in_order if name != AUTO)
    return Row((found.collective, found.size, *times), missed, remark=everything)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    choice = sweep.chosen(options)
    columns = (
        ("collective", -14), ("bytes", 9), ("default", -18), ("us", 9), ("best other", -18), ("us", 9),
        ("other/auto", 10),
    )  # fmt: skip
    works = [Work((name,), choice.sizes, choice.rounds, options.iterations) for name in choice.collectives]
    here = [
        Part(f"1 host of {ranks} ranks on {_core.usable_cpus()} cores", columns,
             partial(_rows, partial(_on_this_host, ranks), works))
        for ranks in choice.ranks
        if not options.network
    ]  # fmt: skip
    between = [
        Part(f"{NETWORKS[name]} at {options.rate} ({name})", columns,
             partial(_rows, partial(_between_hosts, name, options.rate), works))
        for name in options.network or ()
    ]  # fmt: skip
    return (*here, *between)


def _configure(parser: argparse.ArgumentParser) -> None:
    sweep.configure(parser)
    parser.add_argument("--iterations", type=count, default=50, metavar="N", help="in a turn, up to 64 KiB (50)")
    parser.add_argument("--network", action="append", choices=NETWORKS, help="between hosts instead; may be repeated")
    parser.add_argument("--rate", type=wire_rate, default=RATE, metavar="R", help=f"of the wires ({RATE})")


TABLE = Table("choices", "the untuned default beside every other choice, by size", _parts, _configure)
