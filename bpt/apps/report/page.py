"""Writes the page of results of one or several runs: HTML without scripts, which needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from bpt.apps.report.curve_chart import draw_chart, style_of
from bpt.apps.report.markup import key, table
from bpt.apps.report.run_history import RunHistory, read_run, run_names
from bpt.base.atomic import check_place, write_text
from bpt.base.errors import UsageError
from bpt.base.log import plural
from bpt.base.version import VERSION

_STYLE = """\
:root { color-scheme: light dark }
body { font: 16px/1.5 sans-serif; max-width: 1120px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff;
  overflow-wrap: break-word }
table { border-collapse: collapse; display: block; overflow-x: auto }
.headed td, .headed tr:first-child th { overflow-wrap: anywhere } .headed td { min-width: 7em }
td, th { border: 1px solid #aaa; padding: .2em .6em; text-align: left }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(340px, 100%), 1fr)); gap: 1em }
svg text { font-size: 12px; fill: currentColor } .grid { stroke: #888; stroke-opacity: .4 }
.key { display: inline-block; max-width: 100%; margin-right: 1em; overflow-wrap: anywhere }
.key svg { width: 48px; height: 8px }
.wide { overflow-x: auto } .wide svg { min-width: 900px }
.drawing { overflow-x: auto; width: fit-content; max-width: 100%; color: #222; background: #fff }
.drawing svg { max-width: max(100%, 700px); height: auto }
.confusion { --share: 0 } .confusion td { background: rgba(210, 90, 30, calc(var(--share) * .8)) }
.confusion td.right { background: rgba(50, 110, 200, calc(var(--share) * .6)) }
.mistakes { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 1em }
figure { margin: 0 } figure img { width: 48%; margin-right: 2%; image-rendering: pixelated }
pre { overflow-x: auto; font-size: 13px }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818 }
  .confusion td { background: rgba(210, 90, 30, calc(var(--share) * .5)) }
}
"""


# Without it, a telephone lays the page out for a wide window, and shows it small.
_VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
_ABOUT = {
    "net": "network", "solver": "solver", "bpt": "bpt", "ranks": "ranks", "random_seed": "seed", "max_iter": "max_iter",
}  # fmt: skip
"""Field of a run's record of its start → its name on the page."""
_TITLED = 3  # runs that the title names
REFRESH = 5  # seconds after which a browser loads the page of a run that has not ended again


def write_report(paths: Sequence[str], output: str, sections: Sequence[str] = (), is_live: bool = False) -> bool:
    """Write the page of the runs whose metrics files are ``paths``.

    Args:
        paths: the metrics files.
        output: the page.
        sections: HTML to put at the end of the page.
        is_live: whether browsers load the page again and again, until all runs have ended.

    Returns:
        Whether all runs have ended.

    Raises:
        FileError: a metrics file cannot be read, or the page not be written.
    """
    runs = [read_run(path, name) for path, name in zip(paths, run_names(paths), strict=True)]
    ended = all(run.ended for run in runs)
    write_text(output, page_of(runs, sections, REFRESH if is_live and not ended else 0))
    return ended


def check_output(output: str) -> None:
    """Raise a UserError if no page can be written to ``output``.

    Raises:
        UsageError: the name does not end in .html.
        WriteError: there is no such folder, or it is read-only.
    """
    if not output.endswith((".html", ".htm")):
        raise UsageError(f"--output {output}: the name must end in .html: the report is a page")
    check_place(output)


def page_of(runs: Sequence[RunHistory], sections: Sequence[str] = (), refresh: int = 0) -> str:
    """Return the page as HTML, with further ``sections`` at its end.

    Args:
        runs: the runs, at least one.
        sections: the HTML of the sections.
        refresh: seconds after which a browser loads the page again; 0: never.
    """
    metas = '<meta charset="utf-8">\n' + _VIEWPORT
    if refresh:
        metas += f'<meta http-equiv="refresh" content="{refresh}">\n'
    names = [run.name for run in runs]
    title = "Training of " + ", ".join(names[:_TITLED])
    if len(names) > _TITLED:
        title += f" and {plural(len(names) - _TITLED, 'other run')}"
    body = "\n".join([*_numbers(runs), *_charts(runs), *_ranks(runs), *sections])
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{metas}<title>{escape(title)}</title>\n'
        f"<style>\n{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n"
        f"<p>This page was written by bpt {VERSION}.</p>\n</body>\n</html>\n"
    )


def _names(runs: Sequence[RunHistory]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name, curve in run.curves.items() if curve.points))


def _numbers(runs: Sequence[RunHistory]) -> Iterator[str]:
    """Yield a table with a column for each run: most pages have few runs, and all have many quantities."""
    names = _names(runs)
    columns = []
    for run in runs:
        about = [run.start.get(key, "unknown") for key in _ABOUT]
        state = "ended" if run.ended else "not ended"
        last = [curve.points[-1] if (curve := run.curves.get(name)) and curve.points else None for name in names]
        values = ["none" if point is None else f"{point[2]:.6g} at {point[0]}" for point in last]
        columns.append([*about, state, f"{run.seconds:.1f}", *values, run.snapshot or "none"])
    yield "<h2>Closing numbers</h2>\n<p>The last values, each with its iteration.</p>"
    head = [*_ABOUT.values(), "state", "seconds", *names, "last snapshot"]
    yield from table(["run", *(run.name for run in runs)], list(zip(head, *columns, strict=True)), is_headed=True)


def _charts(runs: Sequence[RunHistory]) -> Iterator[str]:
    yield "<h2>Curves</h2>\n<p>"
    for index, run in enumerate(runs):
        yield key(f'<line x1="0" x2="48" y1="4" y2="4" stroke-width="3" {style_of(index)}/>', run.name)
    yield "</p>"
    spans = _spans(runs)
    for name in _names(runs):
        yield f'<h3>{escape(name)}</h3>\n<div class="charts">'
        for axis, label in enumerate(("iteration", "time in s")):
            curves = [
                (index, [(point[axis], point[2]) for point in run.curves[name].points])
                for index, run in enumerate(runs)
                if name in run.curves and run.curves[name].points
            ]
            yield draw_chart(name, label, curves, spans[axis])
        yield "</div>"


def _spans(runs: Sequence[RunHistory]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the ranges of iterations and of seconds that all charts share, from the start of the runs on."""
    points = [point for run in runs for curve in run.curves.values() for point in curve.points]
    first = min([*(run.first for run in runs if run.first is not None), *(point[0] for point in points)])
    return (first, max(point[0] for point in points)), (0.0, max(point[1] for point in points))


def _ranks(runs: Sequence[RunHistory]) -> Iterator[str]:
    kinds = ("computing", "data", "exchange", "pipeline")
    yield "<h2>Loads of the ranks</h2>\n<p>Milliseconds an iteration, at the last displayed iteration.</p>"
    rows = []
    for run in runs:
        for each in run.ranks:
            place = [run.name, each.get("rank", ""), each.get("host", "")]
            rows.append([*place, "measured", *_loads(each, kinds)])
            if predicted := each.get("predicted"):
                rows.append(
                    [run.name, each.get("rank", ""), each.get("host", ""), "forecast", *_loads(predicted, kinds)]
                )
    if rows:
        yield from table(["run", "rank", "host", "", *kinds], rows)
    else:
        yield "<p>The metrics files have no loads of ranks.</p>"


def _loads(load: dict[str, float | None], kinds: Sequence[str]) -> list[str]:
    found = [load.get(kind) for kind in kinds]
    return ["–" if value is None else f"{value * 1000:.4g}" for value in found]
