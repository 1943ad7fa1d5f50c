"""Hand-written algorithms: `@algorithm` (decorator.py), chunks (recording.py), examples in `examples/`."""

from syntony.synth.dsl.decorator import Algorithm, algorithm
from syntony.synth.dsl.lines import DslError
from syntony.synth.dsl.recording import Chunk, Recording

__all__ = ["Algorithm", "Chunk", "DslError", "Recording", "algorithm"]
