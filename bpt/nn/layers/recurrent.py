"""Recurrent: what LSTM and RNN have in common (Caffe: RecurrentLayer).

Caffe unrolls these layers into a net of one layer a gate and time step; here the time is a loop over tensors. The
blobs have Caffe's order and shapes, so weights go both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels.linear import linear
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import Family, Layer
from bpt.nn.layers.graph_tracing import is_exported, is_traced
from bpt.nn.layers.layer_text import notice
from bpt.nn.pass_context import PassContext

FIELD = "recurrent_param"
ALONG_TIME = "axis 0 of its bottoms is the time, and the samples stand along axis 1"


class Recurrent(Layer):
    """A layer that goes through sequences, T steps of N streams a pass.

    Bottoms: inputs ``(T, N, …)``, whose axes from 2 on are flattened; markers ``(T, N)``: 0 where a sequence begins,
    else 1. They multiply the state of the step before, and get no diff. Perhaps an input ``(N, …)`` that is the same
    in all steps. With ``expose_hidden`` then the first states, ``(1, N, num_output)`` each.
    Tops: the outputs ``(T, N, num_output)``; with ``expose_hidden`` also the last states.

    Without ``expose_hidden`` the last states of a pass are the first of the next one, so that a sequence may be longer
    than T; no gradient flows from pass to pass. They are 0 in the first pass, after ``reset``, and when N changes.
    Snapshots do not hold them, as in Caffe: after resuming a sequence goes on from 0, unless a marker begins a new
    one there. An exported program keeps none and begins at 0 each time; use ``expose_hidden`` there.

    With ``expose_hidden`` the caller keeps the states. As in Caffe no gradient flows through them: neither into
    the first states nor out of the last ones.

    ``debug_info`` is noticed: there is no net inside to log.
    """

    whole_batch_only = ALONG_TIME
    within_batch = True
    gates: ClassVar[int]  # the rows of the input weights, in units of num_output
    states: ClassVar[int]  # how many tensors make the state
    no_collectives = True
    family = Family.RECURRENT
    settings = "recurrent_param"

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (str(layer.recurrent_param.num_output),)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.recurrent_param
        size = param.num_output
        if not size:
            raise spec.error("needs num_output, at least 1", FIELD, "num_output")
        cls._check_number(spec, bottoms)
        x, markers = bottoms[:2]
        if len(x) < 3 or x[0] < 1 or markers != x[:2]:
            raise spec.error(
                "needs inputs (T, N, …) with T steps, at least 1, of N streams, and markers (T, N): "
                f"{show_bottoms(spec, bottoms)}",
                "bottom",
            )
        rows = cls.gates * size
        params = [ParamSpec((rows, count(x[2:])), param.weight_filler), ParamSpec((rows,), param.bias_filler)]
        if cls._has_static(spec):
            if len(bottoms[2]) < 2 or bottoms[2][0] != x[1]:
                raise spec.error(
                    f'bottom "{spec.bottom_names[2]}" {bottoms[2]}, the input for all steps, must be ({x[1]}, …): '
                    f"a row for each of the N = {x[1]} streams of bottom {show_bottoms(spec, bottoms[:1])} (T, N, …)",
                    "bottom",
                    2,
                )
            params.append(ParamSpec((rows, count(bottoms[2][1:])), param.weight_filler))
        params.append(ParamSpec((rows, size), param.weight_filler))
        state = (1, x[1], size)
        for index, shape in enumerate(bottoms[len(bottoms) - cls._exposed(spec) :], len(bottoms) - cls._exposed(spec)):
            if shape != state:
                raise spec.error(f"the first states must be {state}: {show_bottoms(spec, bottoms)}", "bottom", index)
        return LayerShapes(((*x[:2], size), *(state,) * cls._exposed(spec)), tuple(params))

    @classmethod
    def _exposed(cls, spec: LayerSpec) -> int:
        """Return how many states are bottoms and tops."""
        return cls.states if spec.param.recurrent_param.expose_hidden else 0

    @classmethod
    def _has_static(cls, spec: LayerSpec) -> bool:
        return len(spec.bottoms) - cls._exposed(spec) == 3

    @classmethod
    def _check_number(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> None:
        exposed = cls._exposed(spec)
        setting = "with expose_hidden" if exposed else "without expose_hidden"
        if len(bottoms) - exposed not in (2, 3):
            raise spec.error(
                f"{spec.type} {setting} takes {2 + exposed} or {3 + exposed} bottoms, given {len(bottoms)}", "bottom"
            )
        if len(spec.tops) != 1 + exposed:
            wanted = f"{1 + exposed} tops" if exposed else "1 top"
            raise spec.error(f"{spec.type} {setting} takes {wanted}, given {len(spec.tops)}", "top")

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        steps, streams, size = tops[0]
        static = streams * count(bottoms[2][1:]) if cls._has_static(spec) else 0
        products = count(bottoms[0]) + static + steps * streams * size
        return 2 * products * cls.gates * size + 10 * count(tops[0])

    @classmethod
    def allow_force_backward(cls, bottom: int) -> bool:
        return bottom != 1

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.recurrent_param
        self.size = param.num_output
        self.exposed, self.has_static = self._exposed(spec), self._has_static(spec)
        self.repeatable = bool(self.exposed)
        # The last states, (N, num_output) each; of each micro-batch, where these stand for the batches of ranks.
        self._hidden_states: dict[int | None, tuple[Tensor, ...]] = {}
        if param.debug_info:
            message = "there is no unrolled net to log; debug_info: true in the solver shows the layer itself"
            notice(spec, message, FIELD, "debug_info")

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        x, markers = bottoms[0], bottoms[1].detach()
        inputs = linear(x.flatten(2).flatten(0, 1), self.blob(0), self.blob(1))
        inputs = inputs.reshape(*x.shape[:2], self.gates * self.size)
        if self.has_static:
            inputs = inputs + linear(bottoms[2].flatten(1), self.blob(2), None)
        if self.exposed:
            first = tuple(bottom.detach()[0] for bottom in bottoms[len(bottoms) - self.exposed :])
        else:
            first = self._first(inputs)
        outputs, last = self.unroll(inputs, markers.unsqueeze(-1), first)
        if self.exposed:
            return (outputs, *(state.unsqueeze(0) for state in last))
        if not _is_exported():
            self._hidden_states[self.context.micro_batch] = last
        return outputs

    def unroll(self, inputs: Tensor, markers: Tensor, first: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Go through the steps.

        Args:
            inputs: what the inputs add to the gates, ``(T, N, gates · num_output)``.
            markers: ``(T, N, 1)``.
            first: the first states, ``(N, num_output)`` each.

        Returns:
            The outputs ``(T, N, num_output)``, and the last states, without gradient.
        """
        raise NotImplementedError

    @property
    def hidden_state(self) -> tuple[Tensor, ...]:
        """The states from which the next pass goes on, (N, num_output) each; none: from 0."""
        return tuple(state.detach() for state in self._hidden_states.get(None, ()))

    @hidden_state.setter
    def hidden_state(self, states: tuple[Tensor, ...]) -> None:
        self._hidden_states = {None: states}

    def reset(self) -> None:
        """Let the next pass begin with states of 0 (Caffe: ``RecurrentLayer::Reset``)."""
        self._hidden_states = {}

    def _first(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the states that the last pass has left, or 0."""
        shape = (inputs.shape[1], self.size)
        state = () if _is_exported() else self._hidden_states.get(self.context.micro_batch, ())
        if state and state[0].shape == shape:
            return tuple(each.to(inputs) for each in state)
        return tuple(inputs.new_zeros(shape) for _ in range(self.states))

    def extra_blob(self, index: int) -> Tensor:
        """Parameter blob ``index`` of those behind the input's weights: 0 is the hidden state's weights."""
        return self.blob(2 + self.has_static + index)


def arity_of(states: int) -> Arity:
    """With and without exposed states; ``infer`` tells which it must be."""
    return Arity(bottoms=(2, 3 + states), tops=(1, 1 + states))


def _is_exported() -> bool:
    """Return whether the pass is being written down as a program, which can keep nothing from pass to pass."""
    return is_exported() or is_traced()
