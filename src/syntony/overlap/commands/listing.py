"""`syntony overlap list`: the models, machines, policies and ways of training to plan with."""

from __future__ import annotations

import argparse
from textwrap import wrap
from typing import TYPE_CHECKING

from syntony.base.answer import tell, width
from syntony.base.command import Command

if TYPE_CHECKING:
    from syntony.overlap.policies.apart import Apart
    from syntony.overlap.policies.policy import Policy


def _configure(parser: argparse.ArgumentParser) -> None:
    """Takes no arguments."""


def _lacks(one: Policy | Apart) -> tuple[tuple[str, str], ...]:
    return ("Missing", one.missing), ("Simulated only", one.simulated), ("Without", one.without)


def _run(options: argparse.Namespace) -> int:
    from syntony.overlap.policies.apart import APART
    from syntony.overlap.policies.table import LEFT_OUT, POLICIES
    from syntony.overlap.predict.machine import MACHINES
    from syntony.overlap.step.model_spec import MODELS
    from syntony.overlap.step.pipelines.pipelines import PIPELINES

    policies = [
        {
            "name": one.name, "standing": one.standing, "missing": one.missing, "without": one.without,
            "paper": one.paper, "about": one.about, "knobs": one.values,
        }
        for one in POLICIES.values()
    ]  # fmt: skip
    models = {name: {**vars(model), "parameters": model.parameters} for name, model in MODELS.items()}
    machines = {name: vars(machine) for name, machine in MACHINES.items()}
    lines = [
        "policies (--policy NAME:KNOB=VALUE,..; policies joined by + apply in turn)",
        "  W: the whole idea of the paper; S: simulated only; P: a part of the idea",
        "  without: parts that would change results, or are not about training",
    ]
    for one in POLICIES.values():
        knobs = ", ".join(f"{name}={value}" for name, value in one.values.items())
        about = " ".join(one.about.split()) + (f" [{knobs}]" if knobs else "")
        told = [one.paper, about, *(f"{word}: {what}." for word, what in _lacks(one) if what)]
        first, *others = [line for text in told for line in wrap(text, width() - 22)]
        lines += [f"{one.standing} {one.name:<18}  {first}", *(f"{'':22}{line}" for line in others)]
    for name, reason in LEFT_OUT.items():
        first, *others = wrap(f"left out: {reason}", width() - 22)
        lines += [f"- {name:<18}  {first}", *(f"{'':22}{line}" for line in others)]
    lines += ["", "training on few machines, with slow links or of unlike speed (--layout KEYS)"]
    for system in APART:
        told = [f"{system.paper}; {system.layout}", system.about]
        told += [f"{word}: {what}." for word, what in _lacks(system) if what]
        first, *others = [line for text in told for line in wrap(text, width() - 22)]
        lines += [f"{system.standing} {system.name:<18}  {first}", *(f"{'':22}{line}" for line in others)]
    lines += ["", "models (--model; your own: gpt:hidden=512,blocks=8)"]
    for name, model in MODELS.items():
        source = wrap(f"{model.parameters / 1e9:.3g} billion parameters; {model.source}", width() - 22)
        lines += [f"{'' if row else '  ' + name:<22}{line}" for row, line in enumerate(source)]
    lines += ["", *wrap(f"pipelines (--layout schedule=..): {', '.join(PIPELINES)}", width())]
    lines += ["", "machines (--machine NAME:network=25e9,..)"]
    for name, machine in MACHINES.items():
        rates = wrap(", ".join(f"{key} {value:g}" for key, value in vars(machine).items()), width() - 22)
        lines += [f"{'' if row else '  ' + name:<22}{line}" for row, line in enumerate(rates)]
    apart = [{**vars(system), "standing": system.standing} for system in APART]
    found = {"policies": policies, "apart": apart, "models": models, "pipelines": list(PIPELINES), "machines": machines}
    tell(options, found, lines)
    return 0


COMMAND = Command(
    ("overlap", "list"),
    "list policies, ways of training apart, models, pipelines and machines",
    "syntony overlap list",
    _configure,
    _run,
)
