"""Split layers that were timed, beside Table 1 of the MPI-FC paper: rows of ``scripts/bench mpifc``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bpt.base.log import columns
from scripts.benches.mpifc.ways import MASTER_SLAVE, WHOLE, Way


@dataclass(frozen=True)
class Timed:
    """A way and a size of the layer; times in seconds, medians of its iterations.

    Attributes:
        laps: seconds of each phase of each iteration.
        elements: sent by all ranks in an iteration: forward, backward and for the update.
        multiply_adds: that the busiest rank made in an iteration, counted: forward, backward and for the update.
    """

    way: Way
    outputs: int
    laps: Sequence[Mapping[str, float]]
    elements: tuple[float, float, float]
    multiply_adds: tuple[float, float, float]

    def phase(self, name: str) -> float:
        """Of an iteration."""
        return median(lap[name] for lap in self.laps)

    @property
    def seconds(self) -> float:
        """Forward and backward."""
        return median(lap["forward"] + lap["backward"] for lap in self.laps)


LAYERS = (
    "hosts", "scheme", "K", "batch", "passes", "n_b", "n_t", "forward", "backward", "update", "total", "speedup",
    "elements_forward", "elements_backward", "elements_update", "elements_table1", "multiply_adds_of_a_rank",
    "multiply_adds_table1", "multiply_adds_backward_of_a_rank", "multiply_adds_update_of_a_rank",
    "multiply_adds_update_table1",
)  # fmt: skip


def layer_rows(hosts: str, inputs: int, layers: Sequence[Timed]) -> Iterator[tuple[object, ...]]:
    """A row for each way and size, in the columns of LAYERS; seconds of an iteration."""
    whole = {(t.outputs, t.way.batch): t.seconds for t in layers if t.way.scheme == WHOLE}
    for timed in layers:
        way, (forward, backward, update) = timed.way, timed.multiply_adds
        slice_ = inputs * timed.outputs / way.slaves
        yield (
            hosts, way.scheme, way.slaves, way.batch, way.passes, inputs, timed.outputs,
            *(timed.phase(name) for name in ("forward", "backward", "update", "total")),
            whole[timed.outputs, way.batch] / timed.seconds,
            *timed.elements, way.elements(inputs, timed.outputs), forward,
            way.batch * way.passes * slice_, backward, update, slice_,
        )  # fmt: skip


def layer_table(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The rows in short."""
    lines = [
        ["n_t", "way", "K", "batch", "forward ms", "backward ms", "x whole", "sent forward", "backward", "Table 1"]
    ]
    for row in rows:
        each = dict(zip(LAYERS, row, strict=True))
        lines.append(
            [
                str(each["n_t"]), str(each["scheme"]), str(each["K"]), f"{each['passes']} x {each['batch']}",
                f"{float(str(each['forward'])) * 1e3:.2f}", f"{float(str(each['backward'])) * 1e3:.2f}",
                f"{float(str(each['speedup'])):.2f}",
                *(f"{float(str(each[f'elements_{name}'])):.0f}" for name in ("forward", "backward", "table1")),
            ]
        )  # fmt: skip
    yield from columns(lines, left=2)
    yield "x whole: how many times as fast as on one rank. sent, Table 1: elements of an iteration, all ranks together."
    yield "Table 1: B (K n_b + n_t) each way for MASTER_SLAVE; for PEER, Fig. 6: B (K - 1) (n_b + n_t / K)."


def differing(rows: Iterable[Sequence[object]]) -> list[Sequence[object]]:
    """Return the rows of MASTER_SLAVE that have not sent what Table 1 says: nothing for the update."""
    found = []
    for row in rows:
        each = dict(zip(LAYERS, row, strict=True))
        sent = each["elements_forward"], each["elements_backward"]
        as_printed = sent == (each["elements_table1"],) * 2 and each["elements_update"] == 0
        if each["scheme"] == MASTER_SLAVE and not as_printed:
            found.append(row)
    return found
