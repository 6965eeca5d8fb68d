"""The history of a Solver: a log in memory that grows during training; ``solver.history`` in Python."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bpt.apps.plot.training_log import LogRow, TrainingLog
from bpt.train.solver.milestones import Bound, Displayed, Milestone, Tested

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class History(TrainingLog):
    """The losses, outputs and learning rates of a run, at each displayed iteration and each test.

    Examples are ``history.losses[-1].values["loss"]`` and ``history.test[-1].values["accuracy"]``. Each LogRow also has
    its ``iteration``, the ``seconds`` since the run began, and the learning ``rate``. The history listens to a Solver.
    """

    _start: float = 0.0

    def __call__(self, milestone: Milestone) -> None:
        if isinstance(milestone, Bound):
            self._start = self._start or time.monotonic()
            graphs = [milestone.runtime.net.graph, *(test.operator.net.graph for test in milestone.runtime.nets.tests)]
            self.weighted |= {edge.blob for graph in graphs for edge in graph.outputs if edge.loss_weight}
        elif isinstance(milestone, Displayed):
            iteration, seconds, rate = milestone.iteration, time.monotonic() - self._start, milestone.learning_rate
            self.losses.append(LogRow(iteration, seconds, rate, {"loss": milestone.loss}))
            self.train.append(LogRow(iteration, seconds, rate, _numbers(milestone.outputs)))
        elif isinstance(milestone, Tested):
            values = _numbers(milestone.scores.outputs, f"#{milestone.net}:" if milestone.net else "")
            if self.test and self.test[-1].iteration == milestone.iteration and milestone.net:
                self.test[-1].values |= values
            else:
                self.test.append(LogRow(milestone.iteration, time.monotonic() - self._start, values=values))

    def plot(self, path: str = "") -> Figure:
        """Return the figure that ``bpt plot`` draws of a log, and write it to ``path``, a .png or .svg, if given.

        Raises:
            UserError: matplotlib is missing, or there is nothing to show yet.
            WriteError: the file could not be written.
        """
        # Imported here because matplotlib is an extra, and slow to import.
        from bpt.apps.plot.log_figure import check_figure, figure_of  # noqa: PLC0415
        from bpt.train.outer.report.style import save  # noqa: PLC0415

        if path:
            check_figure(path)
        figure = figure_of([self])
        if path:
            save(figure, path)
        if "IPython" in sys.modules:
            import matplotlib.pyplot  # noqa: F401, PLC0415  without it, notebooks do not show figures
        return figure

    def __repr__(self) -> str:
        parts = [f"{len(self.losses)} losses, {len(self.test)} tests"]
        for rows in (self.losses, self.test):
            parts += [f"iteration {row.iteration}: {_words(row.values)}" for row in rows[-1:]]
        return f"<history of {self.name}: {'; '.join(parts)}>"


def _numbers(outputs: Mapping[str, Tensor], prefix: str = "") -> dict[str, float]:
    """Return the outputs by name; further numbers of the same blob are called ``name[1]``, ``name[2]`` and so on."""
    found: dict[str, float] = {}
    for blob, tensor in outputs.items():
        for index, value in enumerate(tensor.flatten().tolist()):
            found[f"{prefix}{blob}[{index}]" if index else prefix + blob] = value
    return found


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value:.4g}" for name, value in list(values.items())[:3])
