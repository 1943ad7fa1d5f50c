"""Tables from a position in a box to positions, as sketch files write them: `{ 1 = [0] }`, or `{"1": [0]}`."""

from __future__ import annotations

from syntony.base.files.fields import Fields
from syntony.synth.engines.taccl.sketch import Relays


def relays_at(fields: Fields, key: str, words: tuple[str, ...]) -> Relays | str:
    """A table from a position to positions, or one of the words."""
    value = fields.take(key)
    if isinstance(value, str) and value in words:
        return value
    right = "it must be a table from positions to lists of positions, such as { 1 = [0] }"
    if words:
        right += f", or {' or '.join(words)}"
    if not isinstance(value, dict) or not value:
        raise fields.wrong(key, right)
    table = []
    for sender, others in value.items():
        sound = isinstance(others, list) and others and all(type(other) is int and other >= 0 for other in others)
        if not sender.isascii() or not sender.isdigit() or len(sender) > 9 or not sound:
            raise fields.wrong(key, right)
        table.append((int(sender), tuple(others)))
    return tuple(table)
