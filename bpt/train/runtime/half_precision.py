"""Half precision in a run: whether all ranks' devices support it and, under AUTO, which layers are faster with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bpt.base.errors import UserError
from bpt.base.violation import Violation, refuse
from bpt.config.plan.run_plan import RunPlan
from bpt.config.precision import FLOAT32, PRECISIONS, Precision
from bpt.config.proto.fields import without
from bpt.engine.differentiate import gradients
from bpt.graph.autocast import choosable
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.nn.kernels.channels_last import FORMATS, channels_last
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import synchronize
from bpt.system.device.half_support import without_half
from bpt.train.runtime.net_on_device import make_net

LOG = logging.getLogger("bpt")

MARGIN = 0.9  # largest ratio of times that selects half precision, because casts of blobs between layers take time, too
TRIALS = 3  # measurements, of which the fastest counts, because other programs only add to a time
NAMES = ("name", "bottom", "top", "param", "include", "exclude", "blobs")  # fields without effect on the computation

Seconds = tuple[float, float]
"""Seconds of a layer's forward and backward, in single and in half precision."""


def precision_here(plan: RunPlan, world: Communicator, device: torch.device, log: logging.Logger = LOG) -> Precision:
    """Return the precision of the ranks of ``world``; a collective call.

    AUTO is FLOAT32 if a rank does not support bfloat16. If only the net's text asks for a precision that a rank does
    not support, it is FLOAT32, too, because such a text was written for a GPU.

    Raises:
        PrototxtError: a rank has no instructions, or wrong kernels, for the precision in the solver's text.
    """
    precision = plan.precision
    why = _why_not(precision, world, device)
    if why and precision.measures:
        log.info("Precision: FLOAT32, since %s", why)
    elif why and plan.asked_precision is None:
        words = "Precision: FLOAT32, though the net's text asks for %s, since %s (precision: BFLOAT16 in the solver)"
        log.warning(words, precision.name, why)
    elif why:
        words = f"precision: {precision.name} cannot be: {why}"
        refuse(plan, [Violation(("precision",), words, "AUTO finds out what is possible and faster")])
    return FLOAT32 if why else precision


def _why_not(precision: Precision, world: Communicator, device: torch.device) -> str:
    """Return the reason why a rank of ``world`` cannot compute in the precision, or "". A collective call."""
    if precision.half is None:
        return ""
    answers = world.allgather((world.host, without_half(device, precision.half)))
    found = ((f"rank {rank} on host {host}: ", why) for rank, (host, why) in enumerate(answers) if why)
    where, why = next(found, ("", ""))
    return where * (world.size > 1) + why


def net_in(
    precision: str,
    graph: LayerGraph,
    device: torch.device,
    context: PassContext | None = None,
    world: Communicator | None = None,
) -> Net:
    """Return the net of ``graph`` on ``device``, outside of a run, in the named precision; a collective call.

    Args:
        context: the context of the net, except its precision.
        world: the ranks that choose together under AUTO; by default this rank is alone.

    Raises:
        UserError: the precision is unknown, or a rank cannot compute in it.
        RunError: the device does not have enough memory.
    """
    if precision not in PRECISIONS:
        raise UserError(f'precision "{precision}" is none of {", ".join(PRECISIONS)}')
    world = world or SerialCommunicator()
    found = PRECISIONS[precision]
    why = _why_not(found, world, device)
    if why and not found.measures:
        raise UserError(f"precision {precision} cannot be: {why}")
    found = FLOAT32 if why else found
    net = make_net(graph, device, replace(context or PassContext(), precision=found))
    HalfLayers([net], found, world, device).settle()
    return net


class HalfLayers:
    """The layers that compute in half precision: all that can or, under AUTO, those that are faster with it.

    Args:
        nets: the training net, and other nets, in which layers of the same names have the same precision.
        world: the ranks that choose together; the times of the slowest count.
    """

    name = "half_layers"  # in a TrainState

    def __init__(self, nets: Sequence[Net], precision: Precision, world: Communicator, device: torch.device) -> None:
        self._nets = nets
        self._world = world
        self._device = device
        self._candidates = [node.name for node in choosable(nets[0].graph)] if precision.measures else []
        self.settled = not self._candidates
        self._chosen: frozenset[str] = frozenset()

    def settle(self) -> None:
        """Choose the layers if they are not chosen yet; then this is a collective call."""
        if self.settled:
            return
        net = self._nets[0]
        everybody = self._world.allgather(times_of(net, self._device))
        slowest: dict[str, Seconds] = {}
        for name in self._candidates:
            times = [seconds[name] for seconds in everybody if name in seconds]
            slowest[name] = max(t[0] for t in times), max(t[1] for t in times)
        self._use({name for name, (single, half) in slowest.items() if half < MARGIN * single})
        LOG.info("Precision: %s", self._described(slowest))

    def _described(self, slowest: Mapping[str, Seconds]) -> str:
        rest = [name for name in self._candidates if name not in self._chosen]
        before = sum(single for single, _ in slowest.values())
        after = sum(half if name in self._chosen else single for name, (single, half) in slowest.items())
        if not self._chosen:
            return f"FLOAT32, since none of the {len(self._candidates)} layers that multiply is faster in BFLOAT16"
        all_but = f", all but {', '.join(rest)}" if rest else ""
        return (
            f"BFLOAT16 in {len(self._chosen)} of the {len(self._candidates)} layers that multiply{all_but}: together "
            f"{after * 1e3:.3g} ms, in FLOAT32 {before * 1e3:.3g} ms"
        )

    def state(self) -> tuple[int, ...]:
        """Return the choice for a run that continues this one: 1 or 0 for each candidate, or () before the choice."""
        return tuple(int(name in self._chosen) for name in self._candidates) if self.settled else ()

    def load(self, state: Sequence[int]) -> None:
        """Continue with the choice of an earlier run, which is its ``state()``."""
        if len(state) == len(self._candidates):
            self._use({name for name, half in zip(self._candidates, state, strict=True) if half})
        elif state:
            LOG.warning(
                "the snapshot knows which of %d layers compute in half precision, here there are %d to choose among: "
                "the run continues in other numbers",
                len(state),
                len(self._candidates),
            )

    def _use(self, chosen: set[str]) -> None:
        self._chosen, self.settled = frozenset(chosen), True
        for net in self._nets:
            net.precision.compute_in_half(chosen)


def times_of(net: Net, device: torch.device) -> dict[str, Seconds]:
    """Return the times of the candidates on this rank, by name; equal layers are measured once."""
    known: dict[object, Seconds] = {}
    found: dict[str, Seconds] = {}
    for node in filter(lambda node: net.part.runs(node.index), choosable(net.graph)):
        shapes = tuple(net.context.own_shape(net.graph.edges[edge].shape) for edge in node.bottoms)
        text = without(node.spec.param, *NAMES).SerializeToString(deterministic=True)
        key = text, shapes, node.bottom_needs_diff
        if key not in known:
            known[key] = _seconds(net, node, shapes, device)
        found[node.name] = known[key]
    return found


def _seconds(net: Net, node: LayerNode, shapes: Sequence[tuple[int, ...]], device: torch.device) -> Seconds:
    precision = net.context.precision
    assert precision.half is not None
    single, half = (
        [_random(shape, dtype, device) for shape in shapes] for dtype in (precision.compute, precision.half)
    )
    for bottoms in (single, half):
        for bottom, wanted in zip(bottoms, node.bottom_needs_diff, strict=True):
            bottom.requires_grad_(wanted)
    passes = [lambda bottoms=bottoms: _pass(net, node, bottoms) for bottoms in (single, half)]
    rounds = [[_timed(each, device) for each in passes] for _ in range(1 + TRIALS)][1:]  # the first one is a warm-up
    return min(times[0] for times in rounds), min(times[1] for times in rounds)


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    blob = torch.randn(shape, generator=generator).to(device, dtype)
    return channels_last(blob) if blob.dim() in FORMATS else blob


def _pass(net: Net, node: LayerNode, bottoms: Sequence[Tensor]) -> None:
    layer = net.layer(node)
    tops = layer(*bottoms)
    first = tops if isinstance(tops, Tensor) else tops[0]
    leaves = [leaf for leaf in (*bottoms, *layer.blobs) if leaf.requires_grad]
    if first.requires_grad and leaves:
        gradients([first], [torch.ones_like(first)], leaves)


def _timed(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start
