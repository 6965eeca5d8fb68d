"""Updater: updates parameters at the end of an iteration, with learning rates, loss scale and divergence checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set

import torch

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.executor import Applied
from bpt.engine.late_loss import LateLoss, Loss
from bpt.engine.operator import Operator
from bpt.engine.optim import lr_policy
from bpt.engine.optim.loss_scale import LEAST
from bpt.engine.optim.rates import Rates
from bpt.engine.optim.rules import UpdateRule
from bpt.engine.optim.rules.base import UpdatePiece
from bpt.engine.status import Status
from bpt.nn.net import Net
from bpt.parallel.exchange import Exchange
from bpt.system.device import computes_apart
from bpt.train.runtime.divergence import Look, check_late_loss, check_loss
from bpt.train.runtime.loss_scaling import loss_scale
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.smoothed_loss import SmoothedLoss
from bpt.train.state.train_state import TrainState, blob_of


class Updater:
    """Updates the parameters of a net once an iteration, from the summed gradients of all ranks.

    The constructor is a collective call.

    Args:
        net: the net that is trained.
        rule: computes weights from gradients, and has their moments.
        exchange: sums the gradients.
        status: the state of the iteration on all ranks.
        log: gets a message about the loss scale.

    Attributes:
        rule: the argument ``rule``.
        losses: the smoothed loss.
        rates: the learning rate of each iteration.
        scale: the loss scale: losses are multiplied by it, and gradients divided.
        on_loss: functions to call with the loss of each iteration; ``float`` reads it.
        before_update: functions to call with the loss when the gradients are summed and no parameter is updated yet.
    """

    def __init__(
        self,
        plan: RunPlan,
        net: Net,
        rule: UpdateRule,
        parallel: Parallel,
        exchange: Exchange,
        status: Status,
        log: logging.Logger,
    ) -> None:
        self._net = net
        self._parallel = parallel
        self._exchange = exchange
        self._keeps_updates = plan.debug_info or plan.snapshot_diff
        self._stops_at_nan = plan.on_nan == pb.SolverParameter.STOP
        self._is_displayed = plan.displays
        self.rule = rule
        self._status = status
        self.losses, self.rates = SmoothedLoss(plan.average_loss, self._check_late), Rates(plan.optim, plan.display)
        self.scale = loss_scale(plan, net.context.precision, parallel, log)
        self.on_loss: list[Callable[[Loss], object]] = []
        self.before_update: list[Callable[[float], object]] = []
        rule.shard_info = parallel.parameters.shard_info(net, exchange)

    def begin(self, iteration: int, keeps_updates: bool) -> None:
        """Begin an iteration; ``keeps_updates``: whether the rule stores the subtracted updates."""
        lr_policy.log_step(self.rates.spec, iteration)
        self.rule.keep_updates(keeps_updates or self._keeps_updates)
        if self.scale.dynamic and self._parallel.codec:
            self._parallel.codec.begin(self.scale.value)

    def early(self, operator: Operator, iteration: int) -> UpdatePiece | None:
        """Return a callable that updates parameters before all gradients are complete; ``None`` if that is impossible.

        It is impossible if all gradients are needed first: to divide them by a loss scale, to clip them, to observe
        them, to time phases separately, or to sum them over ranks, unless the exchange updates what it has summed.
        """
        scaled = self.scale.dynamic or self.scale.value != 1
        if scaled or self.before_update or self.rates.follows_loss:
            return None
        if self._parallel.is_alone:
            watched = self._parallel.grid.world.events.listens
            if len(operator.segments) > 1 or watched or not operator.compute.updates:
                return None
        elif self._parallel.param.update != pb.ParallelParameter.HOST:
            return None
        return self.rule.piecewise(self.rates(iteration), iteration)

    def may_read_late(self, iteration: int, device: torch.device) -> bool:
        """Return whether the loss of an iteration may be read later, when it is displayed or stored.

        Then the host can run ahead of a GPU. It is impossible if the iteration is displayed, if a learning rate or a
        caller depends on its loss, or if there are other ranks.
        """
        needed = self._is_displayed(iteration) or self.before_update or self.rates.follows_loss
        return computes_apart(device) and self._parallel.is_alone and not needed

    def _check_late(self, iteration: int, loss: float) -> None:
        if self._checks_loss:
            check_late_loss(loss, iteration, self.rates.spec)

    @property
    def _checks_loss(self) -> bool:
        """Whether a loss that is not finite ends the run; under a dynamic scale it only skips the update."""
        return self._stops_at_nan and not (self.scale.dynamic and self.scale.value > LEAST)

    def update(self, iteration: int, loss: Loss, applied: Sequence[Applied], again: Look) -> None:
        """Call all observers, and then update the parameters, in Caffe's order; a collective call.

        Args:
            loss: the loss of all ranks.
            applied: the gradients.
            again: function that runs the net forward as this iteration did.
        """
        if not isinstance(loss, LateLoss):
            self.losses.settle()
            if self._checks_loss:
                check_loss(loss, iteration, self.rates.spec, self._net, self._parallel.grid.world, again)
        self.losses.add(iteration, loss)
        if self.rates.follows_loss:
            self.rates.observe(iteration, self.losses.value)
        found = [(each, self._parameters_of(each.layers)) for each in applied]
        finite = self._divide(found)
        for call in self.on_loss:
            call(loss)
        for before in self.before_update:
            before(float(loss))
        for each, members in found if finite else ():
            late = each.late if self._parallel.param.corrects_delays else None
            self.rule.update(self.rates(each.iteration), each.iteration, members, late)
        self.rule.average(iteration + 1)

    def _parameters_of(self, layers: Set[int] | None) -> list[int]:
        """Return the indices of the parameters of ``layers``; ``None`` means all layers."""
        held = enumerate(self._net.local_params)
        return [index for index, param in held if layers is None or param.layer in layers]

    def _divide(self, applied: Sequence[tuple[Applied, Sequence[int]]]) -> bool:
        """Unscale the gradients; drop all of them if any is not finite. Return whether all were finite.

        Args:
            applied: gradients with the indices of their parameters.
        """
        each = [self.scale.divide(self.rule.gradients(members), of.batch) for of, members in applied]
        finite = all(each)
        if not finite:
            self.rule.skip()
            if self._parallel.codec:
                self._parallel.codec.undo()
        if self.scale.dynamic and self._parallel.is_delayed:
            self.scale.learn(not self._status.overflown)
            self._status.overflow = not finite  # the next loss carries it
        return finite

    @torch.no_grad()
    def load(self, state: TrainState) -> None:
        """Continue from the parameters and update data of a state, as ``Runtime.load`` does."""
        net = self._net
        no_moments = (torch.zeros(()),) * self.rule.tensors_per_parameter
        for place, param in enumerate(net.local_params):
            blob, value = blob_of(net.graph, param), net.value(param)
            value.copy_(state.weights[blob])
            value.grad = None
            moments = self.rule.history[place :: len(net.local_params)]
            own = self.rule.parameters[place]
            for target, moment in zip(moments, state.moments.get(blob, no_moments), strict=True):
                target.copy_(own.own(moment))
            if self.rule.averages and blob not in state.moments:
                moments[-1].copy_(own.own(state.weights[blob]))
        self._exchange.slices.read()
        self.scale.load(state.loss_scale)
        self.rates.load(state.plateau)
        self.losses.load(state.losses)
