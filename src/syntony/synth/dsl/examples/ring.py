"""All_reduce round a ring: every chunk is summed once around, then copied once around."""

from syntony.synth.dsl import Recording, algorithm


@algorithm("all_reduce", ranks=4, chunks=lambda ranks: ranks)
def ring(a: Recording) -> None:
    for chunk in range(a.chunks):
        x = a.input(rank=chunk, chunk=chunk)
        for hop in range(1, a.ranks):
            x = x.reduce(to=(chunk + hop) % a.ranks)
        for hop in range(a.ranks - 1):
            x = x.copy(to=(chunk + hop) % a.ranks)


if __name__ == "__main__":
    print(ring.program())
