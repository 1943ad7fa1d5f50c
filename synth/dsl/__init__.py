"""Algorithms written by hand: `@algorithm` (algorithm.py), chunks (recording.py), examples in `examples/`."""

from synth.dsl.algorithm import Algorithm, algorithm
from synth.dsl.lines import DslError
from synth.dsl.recording import Chunk, Recording

__all__ = ["Algorithm", "Chunk", "DslError", "Recording", "algorithm"]
