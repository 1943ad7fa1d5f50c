"""All_reduce by recursive doubling: for every bit of its number, a rank exchanges sums with its neighbour in it."""

from syntony.synth.dsl import Recording, algorithm


@algorithm("all_reduce", ranks=8)
def hypercube(a: Recording) -> None:
    held = [a.input(rank) for rank in range(a.ranks)]
    bit = 1
    while bit < a.ranks:
        held = [held[rank].add(held[rank ^ bit]) for rank in range(a.ranks)]
        bit *= 2
