"""Seen: what a rank's events are, with instructions as they print."""

from __future__ import annotations

from bpt.engine import instructions as do
from bpt.engine.instructions import InstructionStep
from bpt.system.comm.base import Communicator
from bpt.system.events.event import Activity
from bpt.system.events.totals import Key, Totals, Traffic

LETTERS = {kind.letter: kind for kind in do.InstructionBase.__subclasses__()}
DIFFS = {kind.letter.lower(): kind for kind in (do.Send, do.Recv)}


class Seen(Totals):
    """Adds up what ``comm`` and those made from it see from now on."""

    def __init__(self, comm: Communicator) -> None:
        super().__init__()
        comm.events.add(self)

    def calls(self) -> dict[tuple[str, str], Traffic]:
        """("X0 conv/0", "Allreduce") → what was seen of such calls since the last time; "": outside of all."""
        taken = self.take().items()
        return {(printed(key), key.method): traffic for key, traffic in taken if key.method}


def printed(key: Key) -> str:
    """Instruction and message."""
    return " ".join(filter(None, ("" if key.step is None else str(key.step), key.message)))


def key_of(text: str, method: str = "") -> Key:
    """The key that prints so."""
    name, _, message = text.partition(" ")
    return Key(step_of(name), message, method)


def step_of(name: str) -> InstructionStep | Activity | None:
    """The step that prints so."""
    if not name:
        return None
    letter, number = name[0], int(name[1:]) if name[1:] else None
    return InstructionStep(DIFFS[letter], number, True) if letter in DIFFS else InstructionStep(LETTERS[letter], number)
