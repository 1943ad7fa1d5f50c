"""Algorithms written by hand: `@algorithm` (algorithm.py), the verbs of a chunk (chunk.py), examples in `examples/`."""

from synth.dsl.algorithm import Algorithm, algorithm
from synth.dsl.chunk import Chunk
from synth.dsl.lines import DslError
from synth.dsl.recording import Recording

__all__ = ["Algorithm", "Chunk", "DslError", "Recording", "algorithm"]
