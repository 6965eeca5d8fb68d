"""Writes the metrics of a run as JSON lines, one for each milestone; docs/metrics.md lists the fields."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any

from torch import Tensor

from bpt.base.atomic import check_place
from bpt.base.errors import UsageError, WriteError
from bpt.base.version import VERSION
from bpt.config.plan.run_plan import RunPlan
from bpt.train.solver.milestones import Displayed, Saved, Tested
from bpt.train.telemetry.rank_loads import Scored
from bpt.train.telemetry.run_start import RunStart


def check_metrics_file(path: str) -> None:
    """Check before a run that the file of metrics can be written.

    Raises:
        UsageError: its name does not end in .jsonl.
        FileError: its folder is missing, or is not writable.
    """
    if not path.endswith(".jsonl"):
        raise UsageError(f"--metrics {path}: the name must end in .jsonl: it holds a line of JSON for each milestone")
    check_place(path)


class MetricsFile:
    """A Sink that writes lines of JSON, each at once, so that ``bpt watch`` can follow.

    A run that continues from a snapshot continues its file; a new run begins a new file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def begin(self, plan: RunPlan, start: RunStart) -> None:
        """Write that training begins."""
        if self._file is None:
            try:
                self._file = open(self._path, "a" if start.iteration else "w", encoding="utf-8")  # noqa: SIM115
            except OSError as error:
                raise WriteError(self._path, error.strerror) from None
        self._write(
            "start",
            iteration=start.iteration,
            bpt=VERSION,
            solver=plan.path,
            net=start.net,
            max_iter=plan.max_iter,
            snapshot_prefix=plan.snapshot_prefix,
            ranks=start.ranks,
            replicas=start.replicas,
            stages=start.stages,
            shards=start.shards,
            random_seed=start.random_seed,
        )

    def displayed(self, shown: Displayed, samples: int, ranks: Sequence[Scored]) -> None:
        """Write a displayed iteration."""
        seconds = shown.seconds / shown.iterations
        self._write(
            "train",
            iteration=shown.iteration,
            loss=shown.loss,
            outputs=_plain(shown.outputs),
            lr=float(f"{shown.learning_rate:.7g}"),  # all digits of its float32
            seconds_an_iteration=seconds,
            samples_a_second=samples / seconds,
            ranks=[
                {"rank": each.rank, **asdict(each.load), "score": each.score, "own_score": each.own_score}
                | ({} if each.predicted is None else {"predicted": asdict(each.predicted)})
                for each in ranks
            ],
        )

    def tested(self, tested: Tested) -> None:
        """Write the scores of a test."""
        scores = tested.scores
        self._write(
            "test", iteration=tested.iteration, net=tested.net, loss=scores.loss, outputs=_plain(scores.outputs)
        )

    def saved(self, saved: Saved) -> None:
        """Write that a snapshot has been written."""
        self._write("snapshot", iteration=saved.iteration, path=saved.path)

    def close(self) -> None:
        """Write the end of the run."""
        if self._file is not None:
            self._write("end")
            self._file.close()
            self._file = None

    def _write(self, kind: str, **fields: Any) -> None:
        assert self._file is not None
        try:
            self._file.write(json.dumps({"kind": kind, "time": time.time(), **_finite(fields)}) + "\n")
            self._file.flush()
        except OSError as error:
            raise WriteError(self._path, error.strerror) from None


def _plain(values: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return outputs as numbers, or lists of them."""
    return {blob: value.item() if value.numel() == 1 else value.flatten().tolist() for blob, value in values.items()}


def _finite(value: Any) -> Any:
    """Return ``value`` for JSON, where NaN and infinity are null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
