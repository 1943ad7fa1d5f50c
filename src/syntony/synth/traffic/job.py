"""Job: a training job as the network sees it. It computes, then its members exchange messages, repeatedly.

    iteration 0              iteration 1
    [compute][messages    ]  [compute][messages    ]  ..        on and off, as in CASSINI (NSDI'24, section 2)

The next iteration begins when all messages of this one have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from syntony.base.command import UserError
from syntony.synth.traffic.messages import Messages


@dataclass(frozen=True, eq=False)
class Job:
    """`messages` of one iteration between `members` (ranks of the topology; member i of a message is members[i]).

    compute  seconds of every iteration before its messages; start: seconds before the first iteration
    """

    name: str
    members: tuple[int, ...]
    messages: Messages
    iterations: int = 1
    compute: float = 0.0
    start: float = 0.0

    def __post_init__(self) -> None:
        if len(self.members) != self.messages.members:
            raise UserError(
                f"job {self.name}: its traffic is between {self.messages.members} members, "
                f"but {len(self.members)} are listed"
            )
        if len(set(self.members)) != len(self.members):
            raise UserError(f"job {self.name}: a rank is listed twice among its members")
