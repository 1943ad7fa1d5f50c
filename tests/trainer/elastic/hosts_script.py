"""One rank of a run on several hosts. Arguments: the rank to be killed, its last step, words of `syntony train`."""

from __future__ import annotations

import os
import sys

from syntony.__main__ import main
from tests.trainer.elastic.going_on_script import dying

if __name__ == "__main__":
    victim, step, *words = sys.argv[1:]
    if os.environ["RANK"] == victim:
        dying(int(step), ops=5)
    sys.exit(main(["train", *words]))
