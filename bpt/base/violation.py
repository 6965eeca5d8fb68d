"""Violation: the reason why a plan cannot run. Rules yield violations as data; ``refuse`` raises them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bpt.base.errors import LayerError, PrototxtError
from bpt.base.origin import FieldPath, Origin

Locate = Callable[..., Origin | None]
"""Returns the place of a field of the solver: ``locate("stepvalue", 2)`` (``RunPlan.origin`` is one)."""

PARALLEL = "parallel_param"


@dataclass(frozen=True)
class Violation:
    """A setting that makes no sense, or that contradicts another one.

    Attributes:
        field: the path of the solver's field; (): the text as a whole.
        why: the reason, in words that name the value.
        remedy: what to do, if ``why`` does not say it.
        layer: the layer of a net that contradicts the setting; "": only the solver is concerned.
        place: the place in a net's text, if it is not that of ``field``.
        about: the message that ``why`` is about, if ``field`` is not in it.
        exchange: the value for ``{exchange}`` in ``why``; "": ``why`` holds for every exchange.
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
        """The reason and the remedy, without the message that they are about."""
        why = self.why.format(exchange=self.exchange) if self.exchange else self.why
        return f"{why}; {self.remedy}" if self.remedy else why

    @property
    def message(self) -> str:
        """The whole message in a line. It begins with the message around the field, unless that is the solver."""
        names = [name for name in self.field if isinstance(name, str)]
        about = self.about or (names[-2] if len(names) > 1 and not self.layer else "")
        return f"{about}: {self.words}" if about else self.words

    def error(self, locate: Locate) -> PrototxtError:
        """Return the error of this violation, with its place."""
        if self.layer:
            return LayerError(self.layer, self.message, self.place)
        return PrototxtError(self.message, self.place or locate(*self.field))


def check_range(
    spec: object,
    name: str,
    *within: str,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    hint: str = "",
) -> Iterator[Violation]:
    """Yield a violation unless the number ``name`` of ``spec`` is finite and within the limits.

    Args:
        spec: the object with the field as an attribute.
        name: the field.
        within: the messages around the field.
        least: the lowest allowed value.
        above: a value below all allowed ones.
        below: a value above all allowed ones.
        hint: further words after the limits.
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
class IgnoredSetting:
    """A setting without effect. The user may have forgotten a setting that it needs.

    Attributes:
        field: the path of the solver's field.
        why: the missing setting, or the one that replaces it: "without exchange: CGDP".
        words: the whole remark, if "has no effect" does not fit.
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
    """An object that knows the places of its fields in a text, such as a RunPlan."""

    def origin(self, *field: str | int) -> Origin | None:
        """Return the place of a field."""


def refuse(plan: Located, found: Iterable[Violation]) -> None:
    """Raise a PrototxtError for the first violation, if there is any, at its place in the text of ``plan``."""
    for violation in found:
        raise violation.error(plan.origin)
