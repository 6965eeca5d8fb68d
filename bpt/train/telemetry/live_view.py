"""The live view of a run in a terminal, from its metrics file: ``bpt watch``."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from bpt.base.errors import FileError
from bpt.base.log import columns
from bpt.train.telemetry.metrics_records import Record, record_of
from bpt.train.telemetry.status_text import bar, clock, short

_STEPS = "▁▂▃▄▅▆▇█"
_POLL = 0.5  # seconds between two reads of the file
_CLEAR = "\x1b[H\x1b[2J"


def watch(path: str, once: bool = False, out: TextIO = sys.stdout) -> None:
    """Show the run whose metrics are in ``path``, until it ends.

    On a terminal it waits until training makes the file.

    Args:
        once: whether to show the current state, and return.

    Raises:
        FileError: the file cannot be read, or has no metrics; or it is missing, and ``once`` is set, ``out`` is no
            terminal, or its folder is missing.
    """
    records: list[Record] = []
    follows = not once and out.isatty()
    with _opened(path, follows, out) as file:
        rest = ""
        while True:
            rest += file.read()
            *whole, rest = rest.split("\n")
            records += [record_of(path, number_, line) for number_, line in enumerate(whole, len(records) + 1)]
            if whole or not follows:
                width = shutil.get_terminal_size().columns
                out.write((_CLEAR if follows else "") + "".join(f"{line}\n" for line in view(records, width)))
                out.flush()
            if not follows or (records and records[-1]["kind"] == "end"):
                return
            time.sleep(_POLL)


def _opened(path: str, waits: bool, out: TextIO) -> TextIO:
    """Return the open file; with ``waits``, wait until it exists."""
    told = False
    while True:
        try:
            return open(path, encoding="utf-8")
        except OSError as error:
            if not (waits and isinstance(error, FileNotFoundError) and Path(path).parent.is_dir()):
                raise FileError(path, error.strerror or str(error)) from None
        if not told:
            out.write(f"Waiting for {path}, which bpt train --metrics {path} makes. Ctrl-C ends.\n")
            out.flush()
            told = True
        time.sleep(_POLL)


def view(records: Sequence[Record], width: int = 80) -> Iterator[str]:
    """Yield the lines that show ``records``, a run's metrics so far."""
    begin = max((place for place, each in enumerate(records) if each["kind"] == "start"), default=None)
    if begin is None:
        yield "nothing is known of the run yet"
        return
    start = records[begin]
    train, tests = ([each for each in records if each["kind"] == kind] for kind in ("train", "test"))
    last = max((each.get("iteration", 0) for each in records), default=0)
    ended = " · ended" if records[-1]["kind"] == "end" else ""
    ranks = f"{start['ranks']} ranks" if start["ranks"] > 1 else "one process"
    yield f"{start['net']} · {start['solver']} · {ranks}{ended}"
    most = start["max_iter"]
    yield bar(last, most, f" {last} of {most}{_left(train, last, most)}", width)
    if train:
        now = train[-1]
        yield f"loss {_value(now['loss'])} · lr {_value(now['lr'])} · {_value(now['samples_a_second'])} samples/s"
        yield f"loss      {_spark([each['loss'] for each in train], width - 10)}"
    for name in dict.fromkeys((each["net"], blob) for each in tests for blob in each["outputs"]):
        values = [each["outputs"].get(name[1]) for each in tests if each["net"] == name[0]]
        if not isinstance(values[-1], list):
            yield f"{f'test {name[1]}':<20.20} {_value(values[-1]):>9}  {_spark(values, width - 32)}"
    if train and len(train[-1]["ranks"]) > 1:
        yield ""
        yield from columns(_rows(train[-1]["ranks"]), left=2)


def _rows(ranks: Sequence[Record]) -> list[Sequence[str]]:
    """Return a line for each rank, with predicted times after the measured ones."""
    known = all("predicted" in each for each in ranks)
    head, times = ["rank", "host"], list[tuple[str, bool]]()
    for name in ("computing", "data", "exchange", "pipeline"):
        is_predicted = known and name != "data"
        times.append((name, is_predicted))
        head += [name, "predicted"] if is_predicted else [name]
    rows = [[*head, "MiB", "score", "own score"]]
    for each in ranks:
        row = [str(each["rank"]), each["host"]]
        for name, is_predicted in times:
            row += [_ms(each[name]), _ms(each["predicted"][name])] if is_predicted else [_ms(each[name])]
        rows.append([*row, f"{each['memory'] / 2**20:.0f}", f"{each['score']:.2f}", f"{each['own_score']:.2f}"])
    return list(rows)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _left(train: Sequence[Record], last: int, most: int) -> str:
    if not train or last >= most:
        return ""
    seconds = (most - last) * train[-1]["seconds_an_iteration"]
    return f" · {clock(seconds)} left"


def _value(value: float | None) -> str:
    return "nan" if value is None else short(value)


def _spark(values: Sequence[float | None], room: int) -> str:
    """Return a column for each of ``values``; if there are too many, several share one, which shows the last."""
    count = max(1, min(room, len(values)))
    shown = [values[(place + 1) * len(values) // count - 1] for place in range(count)]
    known = [value for value in shown if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    scale = (len(_STEPS) - 1) / (most - least) if most > least else 0.0
    return "".join("?" if value is None else _STEPS[round((value - least) * scale)] for value in shown)
