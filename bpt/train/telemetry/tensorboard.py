"""Writes the metrics of a run for TensorBoard, by that package's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bpt.base.errors import UserError, WriteError
from bpt.config.plan.run_plan import RunPlan
from bpt.train.solver.milestones import Displayed, Saved, Tested
from bpt.train.telemetry.rank_loads import Scored
from bpt.train.telemetry.run_start import RunStart


class TensorBoard:
    """A Sink that writes events to a folder.

    Raises:
        UserError: the package tensorboard is missing.
    """

    def __init__(self, folder: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  optional package
        except ImportError:
            raise UserError("--tensorboard needs the package tensorboard: pip install 'bpt[tensorboard]'") from None
        self._make = SummaryWriter
        self._folder = folder
        self._writer: Any = None

    def begin(self, plan: RunPlan, start: RunStart) -> None:
        """Begin to write events; TensorBoard then ignores an earlier run's events after this iteration."""
        if self._writer is None:
            try:
                self._writer = self._make(self._folder, purge_step=start.iteration or None)
            except OSError as error:
                raise WriteError(self._folder, error.strerror) from None
            self._writer.add_text("solver", f"```\n{plan.text}\n```", start.iteration)

    def displayed(self, shown: Displayed, samples: int, ranks: Sequence[Scored]) -> None:
        """Write a displayed iteration."""
        self._scalars(
            shown.iteration,
            {
                "train/smoothed loss": shown.loss,
                "train/learning rate": shown.learning_rate,
                "speed/samples a second": samples * shown.iterations / shown.seconds,
                **{f"train/{blob}": value.item() for blob, value in shown.outputs.items() if value.numel() == 1},
            },
        )
        for each in ranks:
            load, name = each.load, f"rank {each.rank}"
            phases = {"computing": load.computing, "data": load.data, "exchange": load.exchange}
            self._scalars(shown.iteration, {f"{name}/{phase} (s)": seconds for phase, seconds in phases.items()})
            self._scalars(shown.iteration, {f"{name}/memory (MiB)": load.memory / 2**20})

    def tested(self, tested: Tested) -> None:
        """Write the scores of a test."""
        outputs = {blob: value.item() for blob, value in tested.scores.outputs.items() if value.numel() == 1}
        self._scalars(tested.iteration, {f"test {tested.net}/{blob}": value for blob, value in outputs.items()})
        self._writer.flush()

    def saved(self, saved: Saved) -> None:
        """Write that a snapshot has been written."""

    def close(self) -> None:
        """Close the event files."""
        if self._writer is not None:
            self._writer.close()

    def _scalars(self, iteration: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)
