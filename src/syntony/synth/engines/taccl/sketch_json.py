"""TACCL's own sketches (microsoft/taccl, taccl/examples/sketch), as ours.

    nnodes                              boxes                       between.box = ranks / nnodes
    intranode_sketch.strategy           "switch"                    what is a switch, the topology says itself
      switch_hyperedge_strategy         "uc-min", "uc-max"          connections = few, many
    internode_sketch.internode_conn     {"1": [0]}, "direct-map", "fully-connected"    between.relays
      gpus_to_sender_rev_map            {"1": [0, 1]}               between.carries
      enforce_ordering                                              between.own_first
    symmetry_offsets                    [[2, 16]]                   symmetry; here it holds for pairs across boxes too
    hyperparameters.input_chunkup                                   chunks

TACCL shares a box's NICs out evenly over the connections that a sketch makes; here the NICs are links of the topology,
and shared by whoever uses them.
"""

from __future__ import annotations

from typing import Literal

from syntony.base.files.fields import Fields, FileError
from syntony.synth.engines.taccl.relay_table import relays_at
from syntony.synth.engines.taccl.sketch import Between, Connections, Relays, Sketch

_CONNECTIONS: dict[str, Connections] = {"uc-min": "few", "uc-max": "many"}
_RELAYS: dict[str, Literal["same", "all"]] = {"direct-map": "same", "fully-connected": "all"}


def sketch_of_json(data: object, where: str, ranks: int) -> Sketch:
    """The sketch for a collective of so many ranks. Raises FileError for what is wrong or cannot be expressed."""
    top = Fields(data, where)
    boxes = top.whole("nnodes")
    if boxes < 1 or ranks % boxes:
        raise top.wrong("nnodes", f"it must divide the {ranks} ranks")
    connections = _inside(top.child("intranode_sketch"), ranks // boxes, where)
    between = None
    if boxes > 1:
        between = _across(top.child("internode_sketch"), ranks // boxes)
    elif top.has("internode_sketch"):
        top.take("internode_sketch")  # TACCL reads it for several nodes only.
    symmetry = []
    for index, row in enumerate(top.rows("symmetry_offsets")):
        if not isinstance(row, list) or len(row) != 2 or not all(type(part) is int and part > 0 for part in row):
            raise top.wrong("symmetry_offsets", "it must be an offset and a group such as [8, 16]", index)
        symmetry.append((row[0], row[1]))
    hyper = top.child("hyperparameters")
    chunks = hyper.whole("input_chunkup")
    if not 1 <= chunks <= 1024:
        raise hyper.wrong("input_chunkup", "it must be from 1 to 1024")
    hyper.finish()
    top.finish()
    return Sketch(where, chunks, connections=connections, symmetry=tuple(symmetry), between=between)


def _inside(fields: Fields, box: int, where: str) -> Connections:
    strategy = fields.string("strategy")
    if strategy in ("minmax", "maxmin"):
        raise FileError(
            f'{where}: intranode_sketch.strategy "{strategy}" balances links as a goal; that is not supported'
        )
    if strategy == "none":
        fields.finish()
        return "any"
    if strategy != "switch":
        raise fields.wrong("strategy", 'it must be "none" or "switch"')
    switches = fields.rows("switches")
    for index, switch in enumerate(switches):
        if not isinstance(switch, list) or not all(type(gpu) is int and 0 <= gpu < box for gpu in switch):
            raise fields.wrong("switches", f"it must be a list of GPUs 0..{box - 1}", index)
    policies = fields.rows("switch_hyperedge_strategy")
    for index, policy in enumerate(policies):
        if not isinstance(policy, str) or policy not in _CONNECTIONS:
            raise fields.wrong("switch_hyperedge_strategy", f"it must be {' or '.join(_CONNECTIONS)}", index)
    if len(policies) != len(switches):
        raise fields.wrong("switch_hyperedge_strategy", f"it must have one for each of the {len(switches)} switches")
    if len(set(policies)) > 1:
        raise fields.wrong("switch_hyperedge_strategy", "policies that differ between switches are not supported")
    fields.finish()
    return _CONNECTIONS[policies[0]] if policies else "any"


def _across(fields: Fields, box: int) -> Between:
    if fields.string("strategy") != "relay":
        raise fields.wrong("strategy", 'it must be "relay"')
    found = relays_at(fields, "internode_conn", tuple(_RELAYS))
    relays = _RELAYS[found] if isinstance(found, str) else found
    carries: Relays = ()
    if fields.has("gpus_to_sender_rev_map"):
        table = relays_at(fields, "gpus_to_sender_rev_map", ())
        assert not isinstance(table, str)
        carries = table
    own_first = False
    if fields.has("enforce_ordering"):
        own_first = fields.take("enforce_ordering")
        if type(own_first) is not bool:
            raise fields.wrong("enforce_ordering", "it must be true or false")
    fields.finish()
    return Between(box, relays, carries, own_first)
