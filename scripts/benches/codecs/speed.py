"""How long an iteration waits for gradients, by codec and link: jobs on the test bed, their rows, and the table."""

from __future__ import annotations

import csv
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from bpt.base.log import columns
from bpt.config.plan.resolve import read_plan
from bpt.config.proto.text import to_text
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Totals, phase_seconds
from bpt.train.runtime.binding import bind
from scripts.benches.harness.nets import Images, fed_net, solver_param
from scripts.benches.harness.tables import append_rows
from scripts.benches.harness.testbed import on_testbed, run_on_hosts

NETS: Mapping[str, Images] = {
    "lenet": Images(28, 64),
    "cifar10_quick": Images(32, 64),
    "alexnet": Images(99, 8),
    "vgg16": Images(32, 8),
}
"""Small images: fewer weights, and time, but as many layers."""

CODECS: Mapping[str, str] = {
    "NONE": "codec: NONE",
    "BF16": "codec: BF16",
    "FP16": "codec: FP16",
    "TOPK": "codec: TOPK ratio: 0.05",
    "POWERSGD": "codec: POWERSGD rank: 4 warm_up: 0",
}
GOALS = {"BF16": 0.60, "TOPK or POWERSGD": 0.25}  # of NONE, at 100 Mbit/s
LARGE = ("alexnet", "vgg16")  # the goals are of these
SLOW = "100mbit"
LONG = 4.0  # seconds of a first iteration that counts itself: a second one would tell the same
RATES = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
FORECAST = 10e9  # bits a second


@dataclass(frozen=True)
class Cell:
    """What was measured; seconds of an iteration, means over the ranks.

    Attributes:
        exposed: of the phase "exchange".
        total: of all.
        iterations: that were timed.
    """

    net: str
    hosts: int
    link: str
    codec: str
    exposed: float
    total: float
    iterations: int

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Which it is."""
        return self.net, self.hosts, self.link, self.codec


HEAD = [field.name for field in fields(Cell)]


def read(path: Path) -> list[Cell]:
    """The cells that are there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Cell(
                row["net"], int(row["hosts"]), row["link"], row["codec"],
                float(row["exposed"]), float(row["total"]), int(row["iterations"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def add(path: Path, cells: Sequence[Cell]) -> None:
    """Write more of them."""
    append_rows(path, HEAD, map(astuple, cells))


def measure(path: Path, nets: Sequence[str], hosts: int, link: str, codecs: Sequence[str], seconds: float) -> None:
    """Measure the cells of so many hosts and a link that ``path`` does not have; a job for each net."""
    known = {cell.key for cell in read(path)}
    missing = {net: [codec for codec in codecs if (net, hosts, link, codec) not in known] for net in nets}
    if not any(missing.values()):
        return
    each = min(1.0, (os.cpu_count() or 1) / hosts)
    names = ",".join(f"{chr(ord('a') + number)}:{each:g}" for number in range(hosts))
    with tempfile.TemporaryDirectory() as folder, on_testbed(names, link):
        for net, wanted in missing.items():
            if wanted:
                print(f"{net}, {hosts} hosts, {link}: {', '.join(wanted)}", file=sys.stderr, flush=True)
                solver = Path(folder) / f"{net}.prototxt"
                solver.write_text(to_text(_solver(net)))
                order = {"solver": str(solver), "codecs": wanted, "seconds": seconds}
                for codec, found in run_on_hosts("codecs.speed", order, Path(folder), hosts).items():
                    add(path, [Cell(net, hosts, link, codec, **found)])


def _solver(net: str) -> Any:
    images = NETS[net]
    values, labels = {"type": "gaussian", "std": 0.5}, {"type": "constant", "value": 1}
    return solver_param(fed_net(net, "DummyData", images, values, labels), 1e-4)


def work(order: dict[str, Any], world: Communicator) -> dict[str, dict[str, float]]:
    """A rank of a job: one codec after the other; the first rank answers."""
    return {codec: _time(order, CODECS[codec], world) for codec in order["codecs"]}


def _time(order: dict[str, Any], codec: str, world: Communicator) -> dict[str, float]:
    """Train for the seconds of the order, or an iteration; the first one counts only if there is no time for more."""
    text = f"engine: CONTIGUOUS parallel_param {{ compression_param {{ {codec} }} }}"
    with bind(read_plan(order["solver"], [text]).measured(), None, world) as runtime:
        first = _iterations(runtime, world, 1)
        if first["total"] > LONG:
            return first
        number = max(1, int(order["seconds"] / first["total"]))
        return _iterations(runtime, world, world.bcast(number))


def _iterations(runtime: Any, world: Communicator, number: int) -> dict[str, float]:
    world.Barrier()
    start = time.perf_counter()
    with world.events.into(Totals()) as totals:
        runtime.run(number)
    seconds = time.perf_counter() - start
    own = phase_seconds(totals.take())["exchange"], seconds
    exposed, total = (sum(column) / world.size / number for column in zip(*world.allgather(own), strict=True))
    return {"exposed": exposed, "total": total, "iterations": number}


def rate(link: str) -> float:
    """Bits a second of ``100mbit``."""
    unit = next(unit for unit in RATES if link.endswith(unit))
    return float(link.removesuffix(unit)) * RATES[unit]


def forecast(of_links: Mapping[float, float], bits: float = FORECAST) -> float | None:
    """Seconds at so many bits a second, by the line a + b / bits through the two fastest that were measured.

    Args:
        of_links: bits a second → exposed seconds.
    """
    if len(of_links) < 2:
        return None
    slower, faster = sorted(of_links)[-2:]
    slope = (of_links[slower] - of_links[faster]) / (1 / slower - 1 / faster)
    return max(0.0, of_links[faster] + slope * (1 / bits - 1 / faster))


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """A line a net, number of hosts and codec: exposed seconds by link, and of NONE."""
    links = sorted({cell.link for cell in cells}, key=rate)
    found = {cell.key: cell for cell in cells}
    head = [
        "net",
        "hosts",
        "codec",
        *(text for link in links for text in (f"{link} s", "x NONE")),
        "10gbit s",
        "x NONE",
    ]
    rows = [head]
    for net, hosts in dict.fromkeys((cell.net, cell.hosts) for cell in cells):
        none = _line(found, net, hosts, "NONE", links)
        for codec in CODECS:
            own = _line(found, net, hosts, codec, links)
            if any(value is not None for value in own):
                texts = [text for pair in zip(own, none, strict=True) for text in _texts(*pair)]
                rows.append([net, str(hosts), codec, *texts])
    yield from columns(rows, left=3)
    yield "s: of an iteration, that the exchange adds to it. 10gbit: a forecast, see --help."


def _line(
    found: Mapping[tuple[str, int, str, str], Cell], net: str, hosts: int, codec: str, links: Sequence[str]
) -> list[float | None]:
    """Exposed seconds by link, and the forecast."""
    own = {link: found[net, hosts, link, codec].exposed for link in links if (net, hosts, link, codec) in found}
    return [*(own.get(link) for link in links), forecast({rate(link): value for link, value in own.items()})]


def _texts(own: float | None, none: float | None) -> tuple[str, str]:
    if own is None:
        return "", ""
    return f"{own:.3f}", f"{own / none:.2f}" if none else ""


def missed(cells: Sequence[Cell]) -> list[str]:
    """The goals that are not met, in a line each; those of which nothing was measured do not count."""
    found = {cell.key: cell.exposed for cell in cells if cell.link == SLOW and cell.net in LARGE}
    lines = []
    for net, hosts in dict.fromkeys((net, hosts) for net, hosts, _, _ in found):
        none = found.get((net, hosts, SLOW, "NONE"))
        for names, goal in GOALS.items():
            own = [found[key] for name in names.split(" or ") if (key := (net, hosts, SLOW, name)) in found]
            if none and own and min(own) > goal * none:
                reached = f"{min(own) / none:.2f} of NONE, goal {goal:g}"
                lines.append(f"MISSED: {net}, {hosts} hosts, {SLOW}, {names}: {reached}")
    return lines
