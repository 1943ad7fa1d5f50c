"""The ten networks, what engines see of them, and the table's verdicts; no lab is needed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from syntony.benchmarks.__main__ import main
from syntony.benchmarks.sim_vs_lab.model import goodput
from syntony.benchmarks.sim_vs_lab.networks import NETWORKS
from syntony.benchmarks.sim_vs_lab.prediction import Prediction
from syntony.benchmarks.sim_vs_lab.synthesized import RATE, SIZE, Line, _closing, _row, seen_by_engines
from syntony.lab.lab_spec import at_rate, spec_of
from syntony.lab.wires.routes import routes_of
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget
from syntony.synth.model.collective import Collective
from syntony.synth.simulation.program_simulator import executor_slice


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_fit_the_lab_and_all_their_wires_are_used(name: str) -> None:
    spec = at_rate(spec_of(NETWORKS[name]()), RATE)
    assert 4 <= len(spec.hosts) <= 8
    assert SIZE % (4 * spec.topology.ranks) == 0
    hops = {(hop.wire.id, hop.near.machine) for route in routes_of(spec) for hop in route.hops}
    assert hops == {(wire.id, end.machine) for wire in spec.wires for end in wire.ends}


def test_engines_see_what_wires_carry_of_our_bytes() -> None:
    spec = at_rate(spec_of(NETWORKS["pairs that share a NIC"]()), RATE)
    seen = seen_by_engines(spec, 1e10)
    message = executor_slice(8)
    for wire in spec.wires:
        for end in wire.ends:
            assert seen.links[end.link].bandwidth == goodput(RATE, message)
    outside = {end.link for wire in spec.wires for end in wire.ends}
    assert {link.bandwidth for link in seen.links if link.id not in outside} == {Fraction(10**10)}


def cell(simulated: float, *measured: float) -> Line:
    topology = NETWORKS["ring, one slow wire"]()
    schedule = greedy.run(topology, Collective.make("all_gather", 5), SIZE, Budget(5))
    return Line(schedule=schedule, promised=0.9, prediction=Prediction(simulated, 0.5), measured=measured)


def test_verdicts() -> None:
    near, far = cell(0.95, 1.0, 3.0, 0.9), cell(1.13, 1.0)
    rows = [_row("ring", near), _row("ring", far)]
    assert rows[0].cells[-2:] == ("0.950", "1.111")
    assert not rows[0].missed
    assert rows[1].missed == "off by +13%"
    assert "off by 9.0% in the median  MISSED: 5%, by 13.0% at most" in _closing(rows)[0]


def test_a_network_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "irregular", "--only", "moebius"]) == 2
    assert "no network has moebius in its name: ring, one slow wire; " in capsys.readouterr().err
