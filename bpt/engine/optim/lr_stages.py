"""Rates in stages: ``multifixed``, whose stages the text names, and ``plateau``, whose stages the loss ends (Intel)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from bpt.base.violation import Violation
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.lr_policy import POLICIES, Policy


@POLICIES.register("multifixed")
class MultiFixed(Policy):
    """The policy of stages: each ``stagelr`` holds up to the iteration of its ``stageiter``, the last one for ever."""

    starts_from_base_lr = False

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        stages = zip(spec.stagelr, spec.stageiter, strict=True)
        return next((rate for rate, last in stages if iteration <= last), spec.stagelr[-1])

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        if not spec.stagelr:
            yield Violation(("lr_policy",), 'stagelr is not set; lr_policy "multifixed" needs it')
        elif len(spec.stagelr) != len(spec.stageiter):
            why = f"stagelr is given {len(spec.stagelr)} times, and stageiter {len(spec.stageiter)} times"
            yield Violation(("stageiter",), why, "give each once a stage")
        for index, (before, value) in enumerate(zip((-1, *spec.stageiter), spec.stageiter, strict=False)):
            if value <= before:
                problem = f"must be above the one before, {before}" if index else "must be at least 0"
                yield Violation(("stageiter", index), f"stageiter is {value}; it {problem}")
        for index, rate in enumerate(spec.stagelr):
            if not 0 <= rate < float("inf"):
                yield Violation(("stagelr", index), f"stagelr is {rate:g}; it must be at least 0")


@POLICIES.register("plateau")
class PlateauPolicy(Policy):
    """The policy ``base_lr · gamma ^ (number of steps)``, whose steps the loss decides (``Rates``)."""

    needs: ClassVar[Mapping[str, float | None]] = {"gamma": 0}
    follows_loss = True

    @classmethod
    def rate(cls, spec: OptimSpec, iteration: int) -> float:
        return spec.base_lr

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        yield from super().violations(spec)
        if not spec.plateau_winsize:
            yield Violation(("lr_policy",), 'plateau_winsize is not set; lr_policy "plateau" needs it')
        for index, size in enumerate(spec.plateau_winsize):
            if size < 1:
                yield Violation(("plateau_winsize", index), f"plateau_winsize is {size}; it must be at least 1")
