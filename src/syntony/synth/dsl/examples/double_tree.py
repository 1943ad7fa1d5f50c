"""All_reduce over two binary trees with half of the data each; leaves of one are inner ranks of the other."""

from syntony.synth.dsl import Chunk, Recording, algorithm


def halves(low: int, high: int) -> list[tuple[int, int]]:
    middle = (low + high) // 2
    return [half for half in ((low, middle), (middle + 1, high)) if half[0] < half[1]]


def summed(a: Recording, tree: int, low: int, high: int) -> Chunk:
    x = a.input(((low + high) // 2 + tree) % a.ranks, chunk=tree)
    below = [summed(a, tree, *half) for half in halves(low, high)]
    return x.add(*below, lane=tree) if below else x


def spread(x: Chunk, tree: int, ranks: int, low: int, high: int) -> None:
    for half in halves(low, high):
        spread(x.copy(to=(sum(half) // 2 + tree) % ranks, lane=tree), tree, ranks, *half)


@algorithm("all_reduce", ranks=8, chunks=2)
def double_tree(a: Recording) -> None:
    for tree in range(a.chunks):  # the second tree is the first, shifted by one rank
        spread(summed(a, tree, 0, a.ranks), tree, a.ranks, 0, a.ranks)
