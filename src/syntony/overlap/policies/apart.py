"""Published ways to train on few machines with slow links between them, or of unlike speed."""

from __future__ import annotations

from dataclasses import dataclass

from syntony.base.standing import Standing, standing_of


@dataclass(frozen=True)
class Apart:
    """One system.

    layout       the keys with which a Layout trains like this, or the command that simulates it
    missing      parts of the paper's method that it does not do; "": none
    without      parts left out permanently; "": none
    simulated    why it can only be simulated; "": it runs
    """

    name: str
    paper: str
    layout: str
    about: str
    missing: str = ""
    simulated: str = ""
    without: str = ""

    @property
    def standing(self) -> Standing:
        return standing_of(self.missing, self.simulated)


APART: tuple[Apart, ...] = (
    Apart(
        "hetpipe",
        "Park et al., HetPipe, USENIX ATC 2020",
        "islands=N,delay=D, with pp and speeds",
        "Not synchronous. Each island is a pipeline over devices of unlike speed. What its wave of microbatches "
        "changes is exchanged while the next waves run: an island misses at most the last D waves of the others, and "
        "always as many, so results are reproducible. With delay=0 all are synchronous. Changes are averaged, not "
        "added, so the learning rate is that of synchronous training.",
        missing="a pipeline runs empty at the end of a wave, and all islands have stages of the same sizes",
    ),
    Apart(
        "diloco",
        "Douillard et al., DiLoCo, arXiv 2311.08105",
        "islands=N,local=H,outer=nesterov",
        "Not synchronous. Islands train alone for H steps, then exchange what these have changed; the mean moves the "
        "weights with Nesterov momentum (outer=average: local SGD). Traffic between islands falls by H. With delay, "
        "training goes on meanwhile.",
    ),
    Apart(
        "swarm",
        "Ryabinin et al., SWARM Parallelism, ICML 2023",
        "syntony overlap swarm --stages 3:1,1:1",
        "Each stage is served by several devices of unlike speed. A microbatch goes to the one that would end it "
        "soonest; devices move to the stages that need them. All gradients are summed in every step, so the result is "
        "that of synchronous training, except for rounding.",
        missing="devices that come and go during a step, and its compression",
        simulated="the trainer's ranks of a stage process equally many microbatches each",
    ),
)
