"""A user's script, which mypy --strict must accept (test_typing.py): the names and types that users write down."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

from syntony import CommunicationError, Communicator, LocalBootstrap, UsageError, Work, empty


def mean(group: Communicator, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The ranks' mean of `values`, begun before it is needed."""
    total = values.copy()
    work: Work | None = group.all_reduce(total, op="avg", async_op=True)
    assert work is not None
    done: bool = work.wait(timeout=60.0)
    assert done
    return total


def main() -> int:
    (bootstrap,) = LocalBootstrap.group(1)
    with Communicator.create(bootstrap, timeout=60.0, name="typed") as group:
        buffer: npt.NDArray[np.float32] = empty(4, np.float32)
        buffer += group.rank + 1
        assert mean(group, buffer).tolist() == [1.0] * 4
        part: Communicator | None = group.split(None)
        assert part is None
        boxes: list[list[int]] = group.boxes
        assert boxes == [[0]]
        try:
            group.all_reduce(buffer[::2])
        except UsageError as error:
            sentence: str = str(error)
            assert "contiguous" in sentence
        except CommunicationError:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
