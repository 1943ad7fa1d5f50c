r"""HammingMesh: boards of accelerators in a grid, their edges joined by a network per line.

Boards of 2x2 in a row; every accelerator has four ports, and on its board they lead to its neighbours:

               column networks
             │  │        │  │
           ┌─┴──┴─┐    ┌─┴──┴─┐
      ┌────┤ 0──1 ├─┬──┤ 4──5 ├─┐
      │    │ │  │ │ │  │ │  │ │ │       every end of a row of accelerators, left and right of every board,
    row 0 ─┼─┼──┼─┼─┘  │ │  │ │ │       is joined to the network of that row
      └────┼─┼──┼─┼────┼─┼──┼─┼─┘
    row 1 ─┤ 2──3 ├─ ─ ┤ 6──7 ├─ ...
           └─┬──┬─┘    └─┬──┬─┘

So any two boards in a line are neighbours (a Hamming graph of boards), while the mesh on a board is cheap copper. The
network of a line is one switch, or a fat tree at full bisection: here it is one node. With square boards of a x a, the
bisection bandwidth is 1/2a of what all accelerators can inject, as in the paper.

Hoefler et al.: HammingMesh: A Network Topology for Large-Scale Deep Learning (SC'22).
"""

from __future__ import annotations

import itertools
from fractions import Fraction

from syntony.base.quantity import rate, seconds, shape
from syntony.topologies.families.boxes.rates import NETWORK_ALPHA, NVLINK_ALPHA
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Permutation, Topology


def hammingmesh(
    boards: tuple[int, ...],
    board: tuple[int, ...] = (2, 2),
    bandwidth: Fraction = Fraction(50 * 10**9),
    alpha: float = NETWORK_ALPHA,
    board_bandwidth: Fraction = Fraction(50 * 10**9),
    board_alpha: float = NVLINK_ALPHA,
) -> Topology:
    """Rows x columns of `boards`, each a mesh of `board` rows x columns. Ranks are numbered board by board.

    On a board of one row (column) an accelerator has both ports on the network of its column (row): two cables.
    Symmetry: permute and mirror the rows of boards, and the columns; exchange both where shapes are square.
    """
    for what, sizes in (("boards", boards), ("board", board)):
        require(
            len(sizes) == 2 and min(sizes) >= 1,
            f"hammingmesh: {what} is {'x'.join(map(str, sizes))}; it must be rows x columns, such as 4x4",
        )
    down, across = boards
    height, width = board
    wiring = Wiring(f"hammingmesh:{down}x{across},board={height}x{width}")
    # at[R][C] is the accelerator in row R and column C of the whole grid.
    at = [[0] * (across * width) for _ in range(down * height)]
    for i in range(down):
        for j in range(across):
            for r in range(i * height, (i + 1) * height):
                for c in range(j * width, (j + 1) * width):
                    at[r][c] = wiring.rank((c + 1.0 * j, -(r + 1.0 * i)))
    rows = [wiring.switch(f"row{r}", (-2.0, -(r + r // height) - 0.25)) for r in range(len(at))]
    columns = [wiring.switch(f"column{c}", (c + c // width + 0.25, 2.0 + 0.4 * (c % 2))) for c in range(len(at[0]))]
    lines = [(switch, at[r], width) for r, switch in enumerate(rows)]
    lines += [(switch, [row[c] for row in at], height) for c, switch in enumerate(columns)]
    for switch, line, length in lines:
        for start in range(0, len(line), length):
            on_board = line[start : start + length]
            for one, other in itertools.pairwise(on_board):
                wiring.cable(one, other, board_bandwidth, board_alpha)
            for end in (on_board[0], on_board[-1]):
                wiring.cable(end, switch, bandwidth, alpha)

    size = columns[-1] + 1
    by_row = [[rows[r], *at[r]] for r in range(len(at))]
    by_column = [[columns[c], *(row[c] for row in at)] for c in range(len(at[0]))]
    moves: list[Permutation] = []
    for strips, length in ((by_row, height), (by_column, width)):
        bands = [strips[start : start + length] for start in range(0, len(strips), length)]
        moves += swap_and_turn(size, [list(itertools.chain(*band)) for band in bands])
        mirror = list(range(size))
        for strip, image in zip(bands[0], reversed(bands[0]), strict=True):
            for node, goal in zip(strip, image, strict=True):
                mirror[node] = goal
        moves.append(tuple(mirror))
    if down == across and height == width:
        transpose = list(range(size))
        for strip, image in (*zip(by_row, by_column, strict=True), *zip(by_column, by_row, strict=True)):
            for node, goal in zip(strip, image, strict=True):
                transpose[node] = goal
        moves.append(tuple(transpose))
    return wiring.topology(moves)


HAMMINGMESH = Family(
    name="hammingmesh",
    build=hammingmesh,
    parameters=(
        Parameter("boards", shape, "rows x columns of boards"),
        Parameter("board", shape, "rows x columns of accelerators on a board"),
        Parameter("bandwidth", rate, "bytes/s between an accelerator and the network of its line, per direction"),
        Parameter("alpha", seconds, "seconds between an accelerator and the network of its line"),
        Parameter("board_bandwidth", rate, "bytes/s between neighbours on a board, per direction"),
        Parameter("board_alpha", seconds, "seconds between neighbours on a board"),
    ),
    summary="boards of accelerators in a grid, their edges joined by a network per line",
    source="HammingMesh (Hoefler et al., SC'22): ports of 400 Gb/s; latencies: TACCL (NSDI'23) table 1, per link",
    example="hammingmesh:3x3,board=2x2",
)
