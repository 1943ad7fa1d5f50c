"""Options of a writer of foreign formats, beyond the contents of a Program."""

from __future__ import annotations

from dataclasses import dataclass

from syntony.synth.model.program import Program
from syntony.synth.model.target import TargetError

MAX_BYTES = 1 << 40


@dataclass(frozen=True)
class ExportOptions:
    """Sizes (bytes) for which the file is used, the protocol, and its name.

    in_place  True, False, or None: both if the format can express it, else out of place if the Program supports it
    """

    min_bytes: int = 0
    max_bytes: int = MAX_BYTES
    protocol: str = "Simple"
    in_place: bool | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_bytes <= self.max_bytes:
            raise TargetError(
                f"the range of sizes {self.min_bytes}..{self.max_bytes} is empty; "
                "the least must be at least 0 and not above the greatest"
            )

    def place(self, program: Program) -> bool:
        """Whether the file is for in-place calls, if it must be one of the two; rejects modes that are not proven."""
        if self.in_place is None:
            return not program.out_of_place
        if self.in_place and program.collective == "all_to_all":
            raise TargetError("in place, all_to_all would lay blocks of different ranks upon each other")
        if not (program.in_place if self.in_place else program.out_of_place):
            asked, told = ("in place", "out of place")[:: 1 if self.in_place else -1]
            raise TargetError(f"program '{program.name}' is right {told} only; it cannot be written for calls {asked}")
        return self.in_place
