"""All_to_all on boxes of 2 in two steps: across the boxes to the rank of one's own place, then inside the box."""

from syntony.synth.dsl import Recording, algorithm

BOX = 2


@algorithm("all_to_all", ranks=4)
def two_step(a: Recording) -> None:
    for box in range(0, a.ranks, BOX):
        for rank in range(a.ranks):
            relay = box + rank % BOX
            arrived = a.input(rank, block=box, count=BOX * a.chunks)  # all that goes to the box, in one message
            if relay != rank:
                arrived = arrived.copy(to=relay)
            for place, block in enumerate(arrived.split(BOX)):
                block.copy(to=box + place, lane=1)
