"""Instructions as lines of text, for the log that a run leaves and a replay reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from bpt.errors import UserError
from bpt.schedule.outer.instructions import Average, Cut, Descend, Instruction, Lost, Merge, Send, Settled
from bpt.schedule.outer.messages import Order
from bpt.schedule.weight_update import Update

Fields = Mapping[str, Any]


def to_line(instruction: Instruction) -> str:
    """One line of JSON; numbers are exact."""
    return json.dumps({type(instruction).__name__: asdict(instruction)}, default=str)


def from_line(line: str) -> Instruction:
    """What ``to_line`` has written.

    Raises:
        UserError: it is something else; the message does not say where.
    """
    try:
        ((name, fields),) = json.loads(line).items()
        return _MAKERS[name](fields)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise UserError(f"this is no instruction of a replay log: {line.strip()[:80]!r}") from error


def _order(fields: Fields) -> Order:
    runs = tuple((int(start), int(stop)) for start, stop in fields["runs"])
    passes = {name: Fraction(fields[name]) for name in ("until", "passes")}
    return Order(**{**fields, **passes, "runs": runs})


_MAKERS: dict[str, Callable[[Fields], Instruction]] = {
    "Merge": lambda fields: Merge(Update(**fields["update"])),
    "Descend": lambda fields: Descend(Update(**fields["update"]), Fraction(fields["progress"])),
    "Average": lambda fields: Average(tuple(fields["workers"]), tuple(fields["factors"]), fields["version"]),
    "Send": lambda fields: Send(_order(fields["order"])),
    "Cut": lambda fields: Cut(fields["worker"], Fraction(fields["passes"]), fields["iterations"]),
    "Settled": lambda fields: Settled(**fields),
    "Lost": lambda fields: Lost(tuple(fields["workers"]), fields["taken_over"]),
}
