"""The closing summary of a run, for people: its best score, its files, its time, and the next commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from bpt.config.plan.run_plan import RunPlan
from bpt.train.telemetry.status_text import clock, short
from bpt.train.telemetry.training_status import TrainingStatus, best_score


def closing_lines(status: TrainingStatus, plan: RunPlan, now: float) -> Iterator[str]:
    """Yield the summary of a run that has ended; nothing if it trained nothing.

    Args:
        status: what was known at the end.
        plan: of the run.
        now: ``time.monotonic()``.
    """
    if status.iteration <= status.first:
        return
    how = f"stopped at iteration {status.iteration} of {status.max_iter}"
    if not was_interrupted(status, plan):
        how = f"trained {status.iteration} iterations"
    yield f"{status.net or 'bpt'}: {how}, in {clock(now - status.started)}"
    rows = [*_rows(status), *(("next", command) for command in next_commands(status, plan))]
    width = max((len(name) for name, _ in rows), default=0)
    before = ""
    for name, text in rows:
        yield f"  {'' if name == before else name:<{width}}  {text}"
        before = name


def _rows(status: TrainingStatus) -> Iterator[tuple[str, str]]:
    if best := best_score(status):
        yield f"best {status.judged}", best
    elif status.loss is not None:
        yield "loss", short(status.loss)
    if status.snapshot:
        yield "snapshot", weights_of_state(status.snapshot)
    if status.best_snapshot:
        yield "best snapshot", weights_of_state(status.best_snapshot)
    if status.log:
        yield "log", status.log


def was_interrupted(status: TrainingStatus, plan: RunPlan) -> bool:
    """Return whether a user stopped the run: neither did it reach its end, nor did tests without progress stop it."""
    is_exhausted = (
        plan.stops_early and status.best is not None and status.best.tests_since >= plan.early_stopping_param.patience
    )
    return status.iteration < status.max_iter and not is_exhausted


def next_commands(status: TrainingStatus, plan: RunPlan) -> Iterator[str]:
    """Yield what a user probably wants to type next."""
    if was_interrupted(status, plan):
        if status.snapshot and plan.path:
            yield _line("bpt train --solver", plan.path, "--snapshot", status.snapshot)
        return
    weights = weights_of_state(status.best_snapshot or status.snapshot)
    nets = plan.nets
    model = nets.test_net[0] if nets.test_net else nets.net or ""
    if not weights or not model:
        return
    if plan.test_iter and not nets.test_state:
        yield _line("bpt test --model", model, "--weights", weights, f"--iterations {plan.test_iter[0]}")
    deploy = Path(model).with_name("deploy.prototxt")
    try:
        command = "detect" if "DetectionOutput" in deploy.read_text(errors="replace") else "classify"
    except OSError:
        return
    yield _line(f"bpt {command} --model", str(deploy), "--weights", weights, "PICTURE")


def weights_of_state(path: str) -> str:
    """Return the file of weights that goes with a solver state."""
    folder, name = os.path.split(path)
    return os.path.join(folder, name.replace(".solverstate", ".caffemodel"))


def _line(*words: str) -> str:
    """Return a command; words that name a flag or a command are written as they are."""
    return " ".join(word if word.startswith(("bpt ", "--")) else shlex.quote(word) for word in words)
