"""No test believes what an earlier run has proven."""

from tests.synth.conftest import no_earlier_proofs as no_earlier_proofs
