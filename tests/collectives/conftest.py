"""A port that nobody listens at; and no test believes what an earlier run has proven."""

from tests.collectives.meeting import port as port
from tests.synth.conftest import no_earlier_proofs as no_earlier_proofs
