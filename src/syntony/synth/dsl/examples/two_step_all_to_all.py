"""All_to_all on boxes of 2 in two steps: across boxes to the rank at the same position, then inside the box."""

from syntony.synth.dsl import Recording, algorithm

BOX = 2


@algorithm("all_to_all", ranks=4)
def two_step(a: Recording) -> None:
    for box in range(0, a.ranks, BOX):
        for rank in range(a.ranks):
            relay = box + rank % BOX
            arrived = a.input(rank, block=box, count=BOX * a.chunks)  # everything for that box, in one message
            if relay != rank:
                arrived = arrived.copy(to=relay)
            for place, block in enumerate(arrived.split(BOX)):
                block.copy(to=box + place, lane=1)
