"""Free groups within the symmetry of points; how engines use them is tested with the engines."""

from __future__ import annotations

from syntony.synth.symmetry.free_group import FreeGroup


def test_a_generator_that_moves_no_point_adds_nothing() -> None:
    """dgx2 has such generators: they swap switches. Engine taccl knows ranks only, and once failed on them."""
    swap, nothing = (1, 0, 3, 2), (0, 1, 2, 3)
    for generators in ([swap, nothing], [nothing, swap]):
        assert FreeGroup.within(4, range(4), generators).order == 2
