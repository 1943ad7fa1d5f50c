"""An algorithm of one's own, proven and simulated.  python examples/my_ring.py"""

import syntony
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
    program = ring.program()  # proven; an error names the line that is wrong
    print(f"proven: all_reduce on {program.ranks} ranks")
    print(f"simulated {syntony.simulate(program, '64M', topology='ring:4').algbw / 1e9:.2f} GB/s at 64 MiB")
