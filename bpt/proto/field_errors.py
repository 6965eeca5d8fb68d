"""Refusals of solver fields: a PrototxtError at the field, in the same words everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable

from bpt.errors import PrototxtError
from bpt.origin import Origin
from bpt.proto import bpt_pb2 as pb

Locate = Callable[..., Origin | None]
"""Tells where a field of the solver was written: ``locate("stepvalue", 2)`` (``SolverSource.origin`` is one)."""


def nowhere(*field: str | int) -> None:
    """The ``Locate`` of a solver that was made in memory."""


def check_number(
    param: pb.SolverParameter,
    field: str,
    origin: Locate,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> None:
    """Raise a PrototxtError unless ``field`` is finite, ``least`` or more, above ``above`` and below ``below``."""
    value = getattr(param, field)
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
        raise PrototxtError(f"{field} is {value:g}; it must be {' and '.join(wanted) or 'finite'}", origin(field))
