"""The table of ``bpt compare``, as CSV with all digits and as Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from bpt.apps.compare.trial_result import TrialResult

COLUMNS = (
    "strategy", "paper", "ranks", "measure", "final", "best", "seconds_to_same", "seconds_an_iteration", "waiting",
    "bytes_sent_an_iteration", "seconds", "failure",
)  # fmt: skip
_HEADS = (
    "strategy", "what its paper calls it", "ranks", "final", "best", "s to {target}", "ms an iteration", "waiting",
    "KiB sent a rank and iteration", "total s",
)  # fmt: skip


def same_score(results: Sequence[TrialResult]) -> float:
    """Return the best score of the worst run: each run that trained to its end has reached it. NaN: no run has one."""
    done = [result for result in results if not result.failure and not math.isnan(result.best)]
    worst = max if any(result.is_loss for result in done) else min
    return worst((result.best for result in done), default=math.nan)


def write_csv_text(results: Sequence[TrialResult]) -> str:
    """Return the table as CSV. Numbers have all their digits; what is not known is an empty cell."""
    target = same_score(results)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in results:
        cells = (
            each.trial.name, each.trial.paper, each.ranks, each.measure, each.final, each.best,
            each.seconds_until(target), each.seconds_an_iteration, each.waiting, each.bytes_sent, each.seconds,
            each.failure,
        )  # fmt: skip
        writer.writerow("" if isinstance(cell, float) and math.isnan(cell) else cell for cell in cells)
    return text.getvalue()


def markdown(results: Sequence[TrialResult]) -> str:
    """Return the table as Markdown, in rounded numbers, with remarks and the reasons of failed runs below it."""
    target = same_score(results)
    measure = next((result.measure for result in results if not result.failure), "score")
    same = "the same" if math.isnan(target) else f"{measure} {target:.4g}"
    heads = [head.format(target=same) for head in _HEADS]
    heads[3], heads[4] = f"final {measure}", f"best {measure}"
    rows = [_row(result, target) for result in results]
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]
    failures = [f"{each.trial.name} failed: {each.failure}" for each in results if each.failure]
    remarks = [f"{each.trial.name}: {each.remark}" for each in results if each.remark]
    notes = [*remarks, *failures]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def _row(each: TrialResult, target: float) -> list[str]:
    named = [each.trial.name, each.trial.paper or "own settings", str(each.ranks)]
    if each.failure:
        return [*named, "failed", *[""] * (len(_HEADS) - len(named) - 1)]
    return [
        *named,
        _number(each.final, ".4f"),
        _number(each.best, ".4f"),
        _number(each.seconds_until(target), ".2f"),
        _number(1000 * each.seconds_an_iteration, ".2f"),
        _number(each.waiting, ".0%"),
        _number(each.bytes_sent / 1024, ",.0f"),
        _number(each.seconds, ".2f"),
    ]


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)
