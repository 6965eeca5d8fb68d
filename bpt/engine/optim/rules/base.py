"""The base of all update rules: what comes before and after the rule's own arithmetic, and the registry.

Caffe's order of an update (``SGDSolver::ApplyUpdate``), on the gradients summed over ``iter_size`` passes:
clip, divide by ``iter_size``, add weight decay, compute the update, subtract it from the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bpt.base.registry import Registry
from bpt.base.violation import Violation
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim import averages
from bpt.engine.optim.gradients import LearnableParam, gradient_scale, l2_norm
from bpt.engine.optim.layer_rates import LocalRate, local_rate_of, norms_of, turned
from bpt.engine.optim.momentum_policy import momentum_at, weight_decay_at
from bpt.engine.optim.shard_info import ALONE
from bpt.engine.optim.tensor_group import TensorGroup
from bpt.engine.optim.tensor_layout import laid_out_like

UpdatePiece = Callable[[Sequence[nn.Parameter], int, int | None], None]
"""Updates parameters, or their rows from one to another (``None``: to the last)."""


class UpdateNumbers(NamedTuple):
    """The numbers of one update of parameters with the same multipliers."""

    rate: float  # learning rate, times lr_mult
    decay: float  # weight decay, times decay_mult
    scale: float  # factor on the gradients: clipping and 1 / iter_size
    iteration: int  # from 0
    momentum: float
    late: int | None = None  # iterations by which the gradients are late, if the rule is to correct that

    def of(self, lr_mult: float, decay_mult: float) -> UpdateNumbers:
        """Return the numbers of parameters with these multipliers, if these are those of 1."""
        return self._replace(rate=self.rate * lr_mult, decay=self.decay * decay_mult)


class UpdateRule:
    """One solver ``type``: how weights follow from gradients, and what it remembers between updates.

    Args:
        spec: already checked.
        parameters: what to train, in Caffe's order.
        keep_updates: keep what was last subtracted from each parameter in ``updates``, as Caffe does in its
            diffs; slower.

    Attributes:
        history: ``tensors_per_parameter`` tensors for each parameter, in Caffe's order: the first moments of all
            parameters, then all second ones. A parameter with ``lr_mult: 0`` has its place but never changes.
        shard_info: what the rule must know of other ranks; by default it is alone.
        before_change: called before an update changes anything.
    """

    moments: ClassVar[int] = 1
    needs_norms: ClassVar[bool] = False
    """An update needs norms of whole parameters, so that all gradients must be there before it begins."""
    decouples_decay: ClassVar[bool] = False
    """Weight decay is no part of the gradient: the rule itself adds it to the update."""
    corrects_delays: ClassVar[bool] = False
    """The rule can correct late gradients."""

    def __init__(self, spec: OptimSpec, parameters: Sequence[LearnableParam], keep_updates: bool = False) -> None:
        self.spec = spec
        self.parameters = tuple(parameters)
        self.tensors_per_parameter = num_moments(spec)
        self.history = [
            torch.zeros_like(p.value.detach()) for _ in range(self.tensors_per_parameter) for p in parameters
        ]
        self._local_rate = local_rate_of(spec)
        self.updates: list[Tensor | None] | None = [None] * len(parameters) if keep_updates else None
        self.shard_info = ALONE
        self.before_change: Callable[[], object] = lambda: None
        self._done: set[int] = set()  # parameters that have had the update that is under way

    @classmethod
    def violations(cls, spec: OptimSpec) -> Iterator[Violation]:
        """Yield which of the numbers that the rule uses make no sense."""
        yield from ()

    def keep_updates(self, wanted: bool) -> None:
        """Keep what is subtracted from each parameter in ``updates`` from now on, or stop to keep it."""
        if wanted != (self.updates is not None):
            self.updates = [None] * len(self.parameters) if wanted else None

    @torch.no_grad()
    def update(
        self, rate: float, iteration: int, members: Sequence[int] | None = None, late: int | None = None
    ) -> None:
        """Update parameters from their ``.grad``, and drop the gradients.

        A parameter without a gradient counts as having a zero one, as in Caffe: weight decay and momentum still move
        it. Gradients are used as scratch memory.

        Args:
            rate: the learning rate.
            iteration: from 0.
            members: indices of the parameters; ``None``: all. Gradients are clipped by the norm of all gradients.
            late: iterations by which the gradients are late, to correct that; ``None``: nothing is corrected.
        """
        assert late is None or self.corrects_delays
        members = range(len(self.parameters)) if members is None else members
        if self.shard_info.updates:
            self._update(rate, iteration, members, late)
        self._drop_gradients(members)

    def piecewise(self, rate: float, iteration: int) -> UpdatePiece | None:
        """Return a function that updates parameters as soon as their gradients are complete.

        It gives the numbers of ``update``, which then updates the other parameters. Several threads may call it, for
        different parameters or rows of them. It leaves parameters without a gradient to ``update``. If training fails
        in between, some parameters have been updated and others have not.

        Returns:
            A function of parameters and their rows (axis 0); ``None`` if an update must see all gradients at once, or
            is kept.
        """
        self._done.clear()
        needs_all = self.spec.clip_gradients >= 0 or self.needs_norms or self._local_rate is not None
        if needs_all or self.updates is not None or not self.shard_info.updates:
            return None
        scale = gradient_scale(self._norm, self.spec)
        steps: dict[int, tuple[int, UpdateNumbers]] = {}
        common = self._step(rate, scale, iteration)
        for (lr_mult, decay_mult), members in self._groups(range(len(self.parameters))):
            step = common.of(lr_mult, decay_mult)
            steps.update((id(self.parameters[index].value), (index, step)) for index in members)
            self._settle(members)  # now, since threads will share it
        return partial(self._update_piece, steps)

    @torch.no_grad()
    def _update_piece(
        self,
        steps: Mapping[int, tuple[int, UpdateNumbers]],
        values: Sequence[nn.Parameter],
        first: int,
        last: int | None,
    ) -> None:
        self.before_change()
        groups: dict[UpdateNumbers, list[int]] = {}
        for value in values:
            if value.grad is not None and id(value) in steps:
                index, step = steps[id(value)]
                groups.setdefault(step, []).append(index)
        for step, members in groups.items():
            group = self._group_of(members)
            self._change(group if last is None else group.rows(first, last), step)
            self._done.update(members)

    def average(self, iteration: int) -> None:
        """Add the weights after ``iteration`` iterations to their average, if there is one."""
        if self.spec.averages and averages.is_due(self.spec.average_param, iteration):
            self.before_change()
            own = [index for index, p in enumerate(self.parameters) if id(p.value) not in self.shard_info.frozen]
            self._settle(own)
            weights = [self.parameters[index].value.detach() for index in own]
            averages.update_average(
                self.spec.average_param, [self.averages[index] for index in own], weights, iteration
            )

    @property
    def averages(self) -> Sequence[Tensor]:
        """The average of each parameter, if they are averaged."""
        return self.history[(self.tensors_per_parameter - 1) * len(self.parameters) :] if self.spec.averages else ()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Replace the parameters by their averages in the scope; their own values come back unchanged."""
        values = [parameter.value for parameter in self.parameters]
        own = [value.detach().clone() for value in values]
        _copy(self.averages, values)
        try:
            yield
        finally:
            _copy(own, values)

    def skip(self) -> None:
        """Skip an update: drop its gradients."""
        if self.updates is not None:
            self.updates = [None] * len(self.parameters)
        self._drop_gradients(range(len(self.parameters)))

    def gradients(self, members: Sequence[int]) -> list[Tensor]:
        """Return the gradients of those parameters with the indices ``members`` that have one."""
        values = (self.parameters[index].value for index in members)
        return [value.grad for value in values if value.grad is not None]

    def _drop_gradients(self, members: Sequence[int]) -> None:
        self._done.difference_update(members)
        for index in members:
            self.parameters[index].value.grad = None

    def _update(self, rate: float, iteration: int, members: Sequence[int], late: int | None) -> None:
        scale = gradient_scale(self._norm, self.spec)
        self.before_change()
        common = self._step(rate, scale, iteration)._replace(late=late)
        if self._local_rate is not None:
            self._update_by_layer(self._local_rate, common, members)
        else:
            self._update_groups(common, members)

    def _update_groups(self, common: UpdateNumbers, members: Sequence[int]) -> None:
        """Update parameters, those with the same multipliers together."""
        for (lr_mult, decay_mult), alike in self._groups(members):
            rest = [index for index in alike if index not in self._done]
            if rest:
                self._apply(rest, common.of(lr_mult, decay_mult))

    def _update_by_layer(self, local_rate: LocalRate, common: UpdateNumbers, members: Sequence[int]) -> None:
        """Update each parameter by a rate of its own; one with a negative ``lr_mult`` has the common rate."""
        alike = [(index, mults) for mults, group in self._groups(members) for index in group]
        indices, turbo = [index for index, _ in alike], self.spec.turbo
        parameters = [self.parameters[index] for index in indices]
        norms = norms_of(parameters, self._group_of(indices), common.scale, self.shard_info, turbo)
        for place, (index, (lr_mult, decay_mult)) in enumerate(alike):
            step = common.of(lr_mult, decay_mult)
            if lr_mult > 0:
                rate = local_rate(self.spec, common.rate, common.decay, common.momentum, norms[place])
                if turbo:
                    rate *= turned(
                        self.history[self.moments * len(self.parameters) + index], norms[place], common.iteration
                    )
                step = step._replace(rate=rate)
            self._apply([index], step)

    def optimizer_state(self, value: nn.Parameter) -> tuple[list[Tensor], list[Tensor]]:
        """Return the moments of a parameter, and its average over iterations, if there is one."""
        index = next(index for index, each in enumerate(self.parameters) if each.value is value)
        own = self.history[index :: len(self.parameters)]
        count = self.tensors_per_parameter - self.spec.averages
        return own[:count], own[count:]

    def _step(self, rate: float, scale: float, iteration: int) -> UpdateNumbers:
        """Return the numbers of an update of parameters with multipliers of 1."""
        decay = weight_decay_at(self.spec, iteration)
        return UpdateNumbers(rate, decay, scale, iteration, momentum_at(self.spec, iteration, rate))

    def _norm(self) -> float:
        """Return the L2 norm of all gradients of the net."""
        own = [p.value.grad for p in self.parameters if p.value.grad is not None and self.shard_info.counts(p)]
        return math.sqrt(self.shard_info.total(l2_norm(own) ** 2))

    def _groups(self, members: Sequence[int]) -> Iterator[tuple[tuple[float, float], list[int]]]:
        """Yield pairs of multipliers, each with the indices of those ``members`` that have them."""
        groups: dict[tuple[float, float], list[int]] = {}
        for index in members:
            parameter = self.parameters[index]
            if parameter.lr_mult and id(parameter.value) not in self.shard_info.frozen:
                groups.setdefault((parameter.lr_mult, parameter.decay_mult), []).append(index)
        yield from groups.items()

    def _apply(self, members: Sequence[int], step: UpdateNumbers) -> None:
        group = self._group_of(members)
        if self.updates is not None:
            for index, update in zip(members, self._subtract(group, step), strict=True):
                self.updates[index] = update
        else:
            self._change(group, step)

    def _change(self, group: TensorGroup, step: UpdateNumbers) -> None:
        if not self._fuse(group, step):
            for piece in group.pieces():
                self._subtract(piece, step)

    def _settle(self, members: Sequence[int]) -> None:
        """Give moments the memory layout of their weights, which may have changed."""
        for index in members:
            for place in range(index, len(self.history), len(self.parameters)):
                self.history[place] = laid_out_like(self.history[place], self.parameters[index].value)

    def _group_of(self, members: Sequence[int]) -> TensorGroup:
        self._settle(members)
        weights = [self.parameters[index].value.detach() for index in members]
        count = len(self.parameters)
        gradients = [self._gradient(index) for index in members]
        moments = tuple([self.history[m * count + index] for index in members] for m in range(self.moments))
        return TensorGroup(weights, gradients, moments)

    def _gradient(self, index: int) -> Tensor:
        value = self.parameters[index].value
        return torch.zeros_like(value) if value.grad is None else laid_out_like(value.grad, value)

    def _subtract(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        if step.scale != 1:
            torch._foreach_mul_(group.gradients, step.scale)
        if step.decay and not self.decouples_decay:
            torch._foreach_add_(group.gradients, self._toward(group), alpha=step.decay)
        update = self._compute(group, step)
        torch._foreach_sub_(group.weights, update)
        return update

    def _toward(self, group: TensorGroup) -> list[Tensor]:
        """Return the tensors of which weight decay adds a part."""
        return group.weights if self._l2 else list(torch._foreach_sign(group.weights))

    @property
    def _l2(self) -> bool:
        return self.spec.regularization_type == "L2"

    def _compute(self, group: TensorGroup, step: UpdateNumbers) -> list[Tensor]:
        """Update the moments; return what to subtract from the weights. Gradients may be overwritten."""
        raise NotImplementedError

    def _fuse(self, group: TensorGroup, step: UpdateNumbers) -> bool:
        """Update all, decay included, in one pass over memory; return whether torch has a kernel for that."""
        return False


@torch.no_grad()
def _copy(source: Iterable[Tensor], target: Iterable[Tensor]) -> None:
    for own, value in zip(source, target, strict=True):
        value.copy_(own)


def num_moments(spec: OptimSpec) -> int:
    """Return how many tensors of its shape a rule remembers of each parameter.

    First come the rule's moments, then the tensor of ``larc_turbo``, and last the average of the weights.
    """
    return UPDATE_RULES[spec.type].moments + spec.turbo + spec.averages


UPDATE_RULES: Registry[type[UpdateRule]] = Registry(
    "solver type",
    {
        "bpt.engine.optim.rules.sgd": ("SGD",),
        "bpt.engine.optim.rules.nesterov": ("Nesterov",),
        "bpt.engine.optim.rules.adagrad": ("AdaGrad",),
        "bpt.engine.optim.rules.rmsprop": ("RMSProp",),
        "bpt.engine.optim.rules.adadelta": ("AdaDelta",),
        "bpt.engine.optim.rules.adam": ("Adam",),
        "bpt.engine.optim.rules.adamw": ("AdamW",),
        "bpt.engine.optim.rules.lamb": ("LAMB",),
    },
)
