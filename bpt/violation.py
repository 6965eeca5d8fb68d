"""Violation: why a run cannot be what a text asks for. Rules yield them; nothing is raised until somebody must stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bpt.errors import LayerError, PrototxtError
from bpt.origin import FieldPath, Origin

Locate = Callable[..., Origin | None]
"""Tells where a field of the solver was written: ``locate("stepvalue", 2)`` (``RunPlan.origin`` is one)."""

PARALLEL = "parallel_param"


@dataclass(frozen=True)
class Violation:
    """What does not make sense, or does not go together.

    Attributes:
        field: of the solver, from the top of its text; (): the text as a whole.
        why: in words that name the value.
        remedy: what to do, if ``why`` does not say it all.
        layer: the layer of a net that wants it otherwise; "": it is about the solver alone.
        place: where it stands, if that is not ``field``: in a net's text.
        about: the message that ``why`` is about, if ``field`` is not one of its own.
        exchange: what stands in ``why`` for ``{exchange}``; "": ``why`` holds whatever the exchange is.
    """

    field: FieldPath
    why: str
    remedy: str = ""
    layer: str = ""
    place: Origin | None = None
    about: str = ""
    exchange: str = ""

    @property
    def words(self) -> str:
        """What is wrong and what to do, without the message that it is about."""
        why = self.why.format(exchange=self.exchange) if self.exchange else self.why
        return f"{why}; {self.remedy}" if self.remedy else why

    @property
    def message(self) -> str:
        """All of it in a line: first the message that the field is in, if it is not the solver itself."""
        names = [name for name in self.field if isinstance(name, str)]
        about = self.about or (names[-2] if len(names) > 1 and not self.layer else "")
        return f"{about}: {self.words}" if about else self.words

    def error(self, locate: Locate) -> PrototxtError:
        """The error of a run that is asked for all the same, at its place."""
        if self.layer:
            return LayerError(self.layer, self.message, self.place)
        return PrototxtError(self.message, self.place or locate(*self.field))


def beyond(
    spec: object,
    name: str,
    *within: str,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    hint: str = "",
) -> Iterator[Violation]:
    """A violation unless the number ``name`` of ``spec`` is finite, ``least`` or more, and between the others.

    Args:
        spec: has the field as an attribute.
        within: the messages around the field.
        hint: what else there is to say, in words that follow the limits.
    """
    value = getattr(spec, name)
    wanted = [f"at least {least:g}"] if least is not None else []
    wanted += [f"above {above:g}"] if above is not None else []
    wanted += [f"below {below:g}"] if below is not None else []
    fits = (
        math.isfinite(value)
        and (least is None or value >= least)
        and (above is None or value > above)
        and (below is None or value < below)
    )
    if not fits:
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        yield Violation((*within, name), f"{name} is {shown}; it must be {' and '.join(wanted) or 'finite'}{hint}")


@dataclass(frozen=True)
class Unused:
    """What is set but has no effect: somebody may have forgotten what goes with it.

    Attributes:
        field: of the solver, from the top of its text.
        why: what it would take, or what takes its place: "without exchange: CGDP".
        words: all of the remark, where "has no effect" is not quite it.
    """

    field: FieldPath
    why: str
    words: str = ""

    @property
    def named(self) -> str:
        """The field as texts write it, inside ``parallel_param``: ``balance_param { rule }``."""
        way = [str(name) for name in self.field if name != PARALLEL]
        return " { ".join(way) + " }" * (len(way) - 1)

    def __str__(self) -> str:
        words = self.words or f"{self.named} has no effect {self.why}"
        return f"{PARALLEL}: {words}" if self.field[:1] == (PARALLEL,) else words


class Located(Protocol):
    """What knows the places of its fields in a text: a RunPlan."""

    def origin(self, *field: str | int) -> Origin | None:
        """Return the place of a field."""


def refuse(plan: Located, found: Iterable[Violation]) -> None:
    """Raise a PrototxtError for the first violation, if there is any, at its place in the text of ``plan``."""
    for violation in found:
        raise violation.error(plan.origin)
