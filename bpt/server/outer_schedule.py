"""The schedule of a run; numbers that do not fit it are refused where they stand."""

from __future__ import annotations

import re
from fractions import Fraction

from bpt.errors import PrototxtError, UserError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource
from bpt.schedule.outer.base import OuterSchedule
from bpt.schedule.outer.exchanges import make_schedule


def schedule_of(
    solver: SolverSource, param: pb.ParallelParameter, samples: int, workers: int, passes: Fraction
) -> OuterSchedule:
    """What ``make_schedule`` makes of ``param``, the solver's ``parallel_param`` or a changed copy of it.

    Raises:
        PrototxtError: a number does not fit the samples, workers or passes; it says which, or that it is the default.
    """
    try:
        return make_schedule(param, samples, workers, passes)
    except UserError as error:
        message, field, value, rest = re.split(r": | is |(?=[,;])", str(error), maxsplit=3)
        default = "" if getattr(param, message).HasField(field) else " (the default)"
        raise PrototxtError(
            f"parallel_param: {message}: {field} is {value}{default}{rest}",
            solver.origin("parallel_param", message, field),
        ) from None
