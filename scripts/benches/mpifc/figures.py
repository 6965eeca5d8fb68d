"""The figures of ``scripts/bench mpifc``, after Fig. 4 and 5 and Table 1 of the paper, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.benches.harness.panels import new_panels, save_panels
from scripts.benches.mpifc.layer_times import Timed
from scripts.benches.mpifc.ways import MASTER_SLAVE, PEER, WHOLE, Way

# Distinct for readers with any kind of colour vision, and in grey (Okabe and Ito).
COLOURS = {WHOLE: "#000000", MASTER_SLAVE: "#D55E00", PEER: "#0072B2"}
MARKS = {WHOLE: "s", MASTER_SLAVE: "o", PEER: "^"}


def label(way: Way) -> str:
    """A way in words."""
    where = "one rank" if way.scheme == WHOLE else f"{way.scheme}, {way.slaves} slaves"
    where = f"{way.scheme}, {way.slaves} ranks" if way.scheme == PEER else where
    return f"{where}, batch {way.batch}"


def draw_layers(stem: Path, title: str, layers: Sequence[Timed]) -> None:
    """Time against K and against n_t, for the batch in one pass (left) and in passes of one (right)."""
    outputs = sorted({timed.outputs for timed in layers})
    slaves = sorted({timed.way.slaves for timed in layers if timed.way.scheme != WHOLE})
    batches = sorted({timed.way.batch for timed in layers}, reverse=True)
    for name, of in (("by_slaves", slaves), ("by_outputs", outputs)):
        figure, all_axes = new_panels(title, len(batches))
        for axes, batch in zip(all_axes, batches, strict=True):
            for scheme, colour in COLOURS.items():
                chosen = [t for t in layers if (t.way.scheme, t.way.batch) == (scheme, batch)]
                if name == "by_slaves":
                    points = {t.way.slaves: t.seconds for t in chosen if t.outputs == outputs[-1]}
                    if scheme == WHOLE:
                        points = dict.fromkeys(slaves, points[1])
                else:
                    points = {t.outputs: t.seconds for t in chosen if scheme == WHOLE or t.way.slaves == slaves[-1]}
                at = sorted(points)
                axes.plot(at, [points[x] * 1e3 for x in at], color=colour, marker=MARKS[scheme], label=scheme)
            fixed = f"n_t = {outputs[-1]}" if name == "by_slaves" else f"K = {slaves[-1]}"
            axes.set_title(f"batch {batch}, {fixed}", fontsize=8)
            axes.set_xscale("log", base=2)
            axes.set_xticks(of, [str(x) for x in of])
            axes.set_ylim(bottom=0)
            axes.set_xlabel("slaves K" if name == "by_slaves" else "outputs n_t of the layer")
            axes.set_ylabel("forward and backward (ms)")
        save_panels(figure, all_axes, stem.with_name(f"{stem.name}_{name}.png"))


def draw_curves(path: Path, title: str, curves: Mapping[Way, Sequence[tuple[int, float, float]]]) -> None:
    """Fig. 4 and 5: accuracy of the test against the time of training."""
    figure, (axes,) = new_panels(title, 1)
    for way, points in curves.items():
        style = "-" if way.passes == 1 else "--"
        axes.plot(
            [seconds for _, seconds, _ in points], [100 * accuracy for _, _, accuracy in points], style,
            color=COLOURS[way.scheme], marker=MARKS[way.scheme], markersize=4, label=label(way),
        )  # fmt: skip
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=0)
    axes.set_xlabel("time of training (s)")
    axes.set_ylabel("accuracy (%)")
    save_panels(figure, [axes], path)
