"""The terminal of ``bpt train``: a live block in place of the log, which goes to a file, and a summary at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal

from bpt.apps.commands.job import Job
from bpt.base.errors import BptError, FileError, UserError
from bpt.base.glog import GlogSettings
from bpt.base.live_block import LOG_TO_STDERR, LiveBlock, is_live
from bpt.base.log import LOG, LogFileHandler, LogPlaces
from bpt.base.progress import showing_progress
from bpt.base.terminal import say
from bpt.config.plan.run_plan import RunPlan
from bpt.train.telemetry.closing_summary import closing_lines
from bpt.train.telemetry.status_sink import StatusSink
from bpt.train.telemetry.training_status import TrainingStatus, status_lines


class TrainingTerminal:
    """What ``bpt train`` shows on the first rank, and where its log goes.

    Args:
        plan: of the run.
        job: the ranks.
        log: the value of ``--log``; "": it was not given.
        resumes: whether the run continues an earlier one, whose log is continued then.
        started: ``time.monotonic()`` when the command began.

    Attributes:
        places: of the log.
        sink: keeps the status that is shown; ``None``: the log is on stderr.

    Raises:
        FileError: the file of ``--log`` cannot be written.
    """

    def __init__(self, plan: RunPlan, job: Job, log: str, resumes: bool, started: float) -> None:
        self.places, self.sink = LogPlaces(), None
        self._plan = plan
        self._default: LogFileHandler | None = None  # the log's file if the user did not name one
        if not job.is_first:
            return
        live = is_live(log)
        file: LogFileHandler | None = None
        if log and log != LOG_TO_STDERR:
            file = _open(Path(log), "a" if resumes else "w")
        elif live and not GlogSettings.read().folder:
            file = self._default = _open_beside_snapshots(plan)
            live = file is not None
        files = (file,) if file else ()
        if live:
            self.sink = StatusSink(TrainingStatus(job.world.size, started))
            self.places = LogPlaces((*files, self.sink), is_elsewhere=True)
        else:
            self.places = LogPlaces(files)

    def __enter__(self) -> TrainingTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write an error of the run to the files of its log, since the terminal alone would have it."""
        if not isinstance(error, BptError):
            return
        for file in self._files:
            file.handle(LOG.makeRecord(LOG.name, logging.ERROR, __file__, 0, "%s", (error,), None))
        is_mistake = isinstance(error, UserError) and self.sink is not None and not self.sink.status.net
        if self._default and is_mistake:  # before the net was built; the error says it all
            self._default.path.unlink(missing_ok=True)

    @property
    def _files(self) -> list[LogFileHandler]:
        return [each for each in LOG.handlers if isinstance(each, LogFileHandler)]

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the run, for the time of the context, once the log has begun."""
        if self.sink is None:
            yield
            return
        status = self.sink.status
        status.log = next((str(file.path) for file in self._files), "")
        block = LiveBlock(lambda width: list(status_lines(status, time.monotonic(), width)))
        with showing_progress(self.sink), block:
            yield

    def summarize(self) -> None:
        """Print the closing summary to the terminal, if the run was shown there."""
        if self.sink is not None:
            lines = closing_lines(self.sink.status, self._plan, time.monotonic())
            say("".join(f"{line}\n" for line in lines))


def _open(path: Path, mode: Literal["a", "w"]) -> LogFileHandler:
    try:
        return LogFileHandler(path, open(path, mode, encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(path, f"the log cannot be written there: {reason}; name another file with --log") from None


def _open_beside_snapshots(plan: RunPlan) -> LogFileHandler | None:
    """Return a new log beside the snapshots; ``None`` if there can be none, so that stderr must get the log."""
    path = Path(f"{plan.snapshot_prefix}_{time.strftime('%Y%m%d-%H%M%S')}.log")
    try:
        if plan.snapshot or plan.snapshot_after_train:
            path.parent.mkdir(parents=True, exist_ok=True)
        return _open(path, "a")
    except (OSError, FileError):
        return None
