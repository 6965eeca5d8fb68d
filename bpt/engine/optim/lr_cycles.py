"""Rates along cosines: ``cosine``, with restarts or without, and ``onecycle``. Neither is in any Caffe."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.lr_policy import POLICIES, Policy, falls


def along_cosine(start: float, end: float, part: float) -> float:
    """Return the value at ``part`` (0 to 1) of half a cosine from ``start`` to ``end``."""
    return end + (start - end) * (1 + math.cos(math.pi * min(max(part, 0.0), 1.0))) / 2


@POLICIES.register("cosine")
class Cosine(Policy):
    """The policy ``min_lr + (base_lr - min_lr) · (1 + cos(π t / T)) / 2`` (SGDR, Loshchilov, Hutter, 2017, Eq. 5).

    Without ``cosine_param { period }`` t is the iteration and T ``max_iter``; beyond, the rate stays at ``min_lr``.
    With it t counts from the last restart: the first T is ``period``, and each is ``growth`` times the one before.
    """

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return along_cosine(spec.base_lr, spec.min_lr, cls._part(spec, iteration))

    @classmethod
    def _part(cls, spec: OptimSpec, iteration: int) -> float:
        """Return t / T."""
        period, growth = spec.cosine_param.period, spec.cosine_param.growth
        if not period:
            return iteration / spec.max_iter
        since = iteration
        while growth > 1 and since >= period:
            since -= period
            period *= growth
        return since % period / period

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from falls(spec)
        yield from check_range(spec.cosine_param, "period", "cosine_param", least=0)
        yield from check_range(spec.cosine_param, "growth", "cosine_param", least=1)
        if not spec.cosine_param.period and spec.max_iter < 1:
            yield Violation(("max_iter",), f'max_iter is {spec.max_iter}; lr_policy "cosine" must know its length')


@POLICIES.register("onecycle")
class OneCycle(Policy):
    """The 1cycle policy ("Super-convergence", Smith and Topin, 2018), at the iterations of torch's OneCycleLR.

    The rate rises from ``base_lr / div_factor`` to ``base_lr``, then falls to the start's ``1 / final_div_factor``,
    each along half a cosine. It is highest at iteration ``rising · max_iter - 1``, and lowest at the last one. It
    is used with ``momentum_policy: "onecycle"``.
    """

    needs: ClassVar[Mapping[str, float | None]] = {"max_iter": 1}

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        param = spec.onecycle_param
        lowest = spec.base_lr / param.div_factor
        return on_cycle(spec, iteration, (lowest, spec.base_lr, lowest / param.final_div_factor))

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from super().violations(spec)
        yield from of_cycle(spec)


def on_cycle(spec: OptimSpec, iteration: int, values: tuple[float, float, float]) -> float:
    """Return a number that is ``values`` at the start of the cycle, at the highest rate, and at the end."""
    start, middle, end = values
    peak, last = spec.onecycle_param.rising * spec.max_iter - 1, spec.max_iter - 1
    if iteration <= peak:
        return along_cosine(start, middle, iteration / peak if peak > 0 else 1.0)
    return along_cosine(middle, end, (iteration - peak) / (last - peak) if last > peak else 1.0)


def of_cycle(spec: OptimSpec) -> Iterator[Violation]:
    """Yield which numbers of ``onecycle_param`` make no sense."""
    yield from check_range(spec.onecycle_param, "rising", "onecycle_param", above=0, below=1)
    for field in ("div_factor", "final_div_factor"):
        yield from check_range(spec.onecycle_param, field, "onecycle_param", above=0)
