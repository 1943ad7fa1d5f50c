"""All_reduce among all pairs: every rank sums one chunk from all ranks, rounded once, and sends it to all."""

from syntony.synth.dsl import Recording, algorithm


@algorithm("all_reduce", ranks=4, chunks=lambda ranks: ranks)
def all_pairs(a: Recording) -> None:
    for rank in range(a.ranks):
        others = [other for other in range(a.ranks) if other != rank]
        total = a.input(rank, chunk=rank)
        if others:
            total = total.add(*(a.input(other, chunk=rank) for other in others))
        for other in others:
            total.copy(to=other)
