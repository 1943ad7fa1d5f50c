"""InNetwork: all_reduce through an aggregating switch (csrc/emulation/aggregator/aggregator.hpp has the picture).

Each rank sends its buffer once and receives the sum once over its own link. That takes size / bandwidth seconds; a ring
takes 2 (n-1) / n times as long. Any process that runs `python -m syntony.lab.aggregator` is such a switch; the network
lab starts one at every switch with an aggregator and passes its address to the ranks in SYNTONY_AGGREGATOR.

    with InNetwork.create(TcpBootstrap.from_environment()) as group:
        group.all_reduce(gradients)  # float32: added in rank order, the same bits for all
        group.all_reduce(gradients, number_format="int32_block")  # as an integer switch does, scaled per block
"""

from __future__ import annotations

import os
import secrets
from types import TracebackType
from typing import Any

from syntony import _emulation
from syntony.base.command import UserError
from syntony.collectives import aggregators
from syntony.collectives.bootstrap.launch import Exchange
from syntony.collectives.bootstrap.user_secret import given_secret
from syntony.collectives.buffers import UsageError, host_buffer_of, overlap


class InNetwork:
    """One rank's end of a group that reduces in a switch. Every rank calls the same operations in the same order.

    Raises ValueError for an invalid call, before anything is sent, and CommunicationError, naming the guilty ranks, for
    failures between ranks or at the aggregator. After a CommunicationError the group is unusable: every later call
    raises the same error.
    """

    def __init__(self, client: _emulation.AggregationClient, rank: int, size: int, timeout: float) -> None:
        self._client, self._rank, self._size, self._timeout = client, rank, size, timeout

    @classmethod
    def create(cls, bootstrap: Exchange, address: str | None = None, timeout: float = 60.0) -> InNetwork:
        """Meets the other ranks at the aggregator (default: SYNTONY_AGGREGATOR). Collective."""
        try:
            way = aggregators.way(os.environ if address is None else {aggregators.VARIABLE: address})
        except UserError as error:
            raise UsageError(str(error)) from None
        if not way:
            raise UsageError(
                f"{aggregators.VARIABLE} is not set: it is the HOST:PORT of a switch that adds "
                "(python -m syntony.lab.aggregator runs one)"
            )
        # The token is fresh and random for each job, so that no other job can join.
        first, _, _ = way.partition(";")  # tree: one thread sends
        told = bootstrap.all_gather("aggregation", secrets.token_bytes(16) + first.encode())
        ways = [each[16:].decode() for each in told]
        client = _emulation.AggregationClient(ways, told[0][:16], bootstrap.rank, timeout, given_secret())
        return cls(client, bootstrap.rank, bootstrap.size, timeout)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    @property
    def passed_on(self) -> int:
        """Packets summed by the server because the switch, whose slots are shared among jobs, had no free slot."""
        return self._client.passed_on

    def all_reduce(
        self, input: Any, output: Any = None, *, number_format: str | None = None, timeout: float | None = None
    ) -> None:
        """output = input[rank 0] + input[rank 1] + ..; without `output`, in place.

        `number_format` is the format in which values travel and are summed (topologies/aggregator.py). By default it
        is the element type (float32, float16, bfloat16, float64, int32). float32 can also travel as `int32_block`,
        `bfloat16` or `float32_fpisa` at a loss of precision (syntony.benchmarks.in_network measures it).
        """
        source = host_buffer_of(input, "the input of all_reduce", writable=output is None)
        target = source if output is None else host_buffer_of(output, "the output of all_reduce", writable=True)
        if (source.dtype, source.elements) != (target.dtype, target.elements):
            raise UsageError(
                f"the output of all_reduce holds {target.elements} elements of {target.dtype}, "
                f"the input {source.elements} of {source.dtype}"
            )
        if overlap(source, target) and source.address != target.address:
            raise UsageError("input and output of all_reduce overlap; pass the same memory or memory apart")
        self._client.all_reduce(
            number_format or source.dtype,
            source.dtype,
            source.address,
            target.address,
            source.elements,
            self._timeout if timeout is None else timeout,
        )

    def close(self) -> None:
        """Leaves the group."""
        self._client.close()

    def __enter__(self) -> InNetwork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
