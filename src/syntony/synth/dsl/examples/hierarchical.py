"""All_reduce on boxes of 4: sums inside boxes, then across boxes at equal positions; copies back the same way."""

from syntony.synth.dsl import Recording, algorithm

BOX = 4


@algorithm("all_reduce", ranks=8, chunks=BOX)
def hierarchical(a: Recording) -> None:
    boxes = [range(first, first + BOX) for first in range(0, a.ranks, BOX)]
    for place in range(BOX):
        sums = []
        for box in boxes:
            others = [a.input(rank, chunk=place) for rank in box if rank != box[place]]
            sums.append(a.input(box[place], chunk=place).add(*others))
        total = sums[0]
        for own in sums[1:]:
            total = own.add(total)
        for box in boxes:
            here = total if total.rank == box[place] else total.copy(to=box[place])
            for rank in box:
                if rank != box[place]:
                    here.copy(to=rank, lane=1)
