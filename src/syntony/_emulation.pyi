"""A switch that adds and its clients, and the delays of emulated wires."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def sum_through_switch(number_format: str, dst: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], sources: Sequence[Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> None:
    """
    dst = the float32 sum that workers holding `sources` get from a switch that adds in `number_format`: scaled,
    added, rounded and scaled back as they and the switch do it together. ValueError for a format without float32.
    """

def carries(number_format: str, dtype: str) -> bool:
    """Whether elements of `dtype` can travel to a switch in `number_format`."""

class Aggregator:
    """A switch that adds, in software: one thread, any number of jobs."""

    def __init__(self, listen: str = '127.0.0.1:0', slots: int = 256, slot_bytes: int = 1376, number_formats: Sequence[str] = [], tenants: int = 1, secret: str = '', shared: bool = False, on_arrival: bool = False) -> None:
        """
        Listens. `number_formats`: those it adds; empty: all. `secret`: what workers must know; beyond loopback there
        must be one. `shared`: slots are whose packet comes first, and a server above adds what finds none.
        `on_arrival`: parts are added as they come, not in rank order.
        ValueError for options that do not fit together,
        CommunicationError when the address cannot be used.
        """

    @property
    def address(self) -> str:
        """ADDRESS:PORT where workers connect."""

    def run(self) -> None:
        """Serves until stop() or a signal handler that raises."""

    def stop(self) -> None:
        """Makes run() return soon; from any thread."""

class AggregationClient:
    """
    A worker's end of a job at an aggregator. Its methods raise CommunicationError for what
    goes wrong between ranks.
    """

    def __init__(self, ways: Sequence[str], token: bytes, rank: int, timeout: float, secret: str = '') -> None:
        """
        Joins the job that the 16 bytes of `token` name. `ways`: by rank, its aggregator's ADDRESS:PORT, then those
        above it, with commas between. Collective: returns when all workers have come.
        """

    def all_reduce(self, number_format: str, dtype: str, input: int, output: int, elements: int, timeout: float) -> None:
        """
        The memory at address `output` = the sum of all workers' at `input` (the same or apart). Collective.
        """

    def close(self) -> None:
        """Leaves the job."""

    @property
    def window(self) -> int:
        """Chunks that may be in flight at once."""

    @property
    def slot_bytes(self) -> int:
        """Bytes of a chunk."""

    @property
    def resent(self) -> int:
        """Packets that were sent again, as they had not arrived."""

    @property
    def asked(self) -> int:
        """Questions after sums that had not come."""

    @property
    def passed_on(self) -> int:
        """Sums that an aggregator of shared slots had no slot for."""

    @property
    def under_way(self) -> int:
        """Packets that it would have under way now."""

def run_delay_line(wires: Sequence[tuple[int, int, float, float]], stop: int) -> tuple[int, int, int, float, float]:
    """
    Passes packets on between pairs of TUN descriptors (one, other, seconds, share lost) until `stop` is readable.
    Returns packets, packets dropped, packets lost, mean and worst lateness in seconds.
    """
