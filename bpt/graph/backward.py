"""Mark the layers and bottoms that take part in the backward pass (as Caffe's ``Net::Init`` does)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bpt.graph.layer_spec import LayerSpec


@dataclass
class BackwardMarks:
    """The marks of one layer: whether it runs backward, and which bottoms get a diff."""

    layer: bool
    bottoms: list[bool]


def mark_backward(
    specs: Sequence[LayerSpec],
    bottoms: Sequence[Sequence[int]],
    tops: Sequence[Sequence[int]],
    trains: Sequence[bool],
    loss_weights: Sequence[float],
    force_backward: bool,
    allow_force: Sequence[Callable[[int], bool]],
) -> list[BackwardMarks]:
    """Decide per layer and bottom, from edge indices, whether backward runs there.

    Args:
        specs, bottoms, tops: the layers in order with the indices of the edges they read and write.
        trains: per layer, whether it has a parameter with a nonzero ``lr_mult``.
        loss_weights: per edge.
        force_backward: the net's flag; it overrides ``propagate_down: false`` where the layer allows.
        allow_force: per layer, whether it allows that for a bottom (a loss does not for its labels). It is called with
            the bottom's index from the front, and with the negative index from the end.

    Two sweeps do this, as in Caffe. The forward sweep wants a diff where an earlier layer learns. The backward sweep
    drops it where no later layer counts towards the loss. Unlike in Caffe, a loss counts even if its readers (such as a
    Silence) give no diff back.

    Raises:
        LayerError: ``propagate_down`` is not given once a bottom, or a bottom needs a diff that the layer cannot
            give (a loss to its labels; Caffe aborts in the first backward pass).
    """
    marks = _sweep_forward(specs, bottoms, tops, trains)
    _sweep_backward(marks, bottoms, tops, loss_weights)
    for spec, mark, allows in zip(specs, marks, allow_force, strict=True):
        number = len(mark.bottoms)
        allowed = [allows(bottom) and allows(bottom - number) for bottom in range(number)]
        _check_possible(spec, mark, allowed)
        if force_backward:
            mark.layer = True
            mark.bottoms = [now or may for now, may in zip(mark.bottoms, allowed, strict=True)]
    return marks


def _sweep_forward(
    specs: Sequence[LayerSpec],
    bottoms: Sequence[Sequence[int]],
    tops: Sequence[Sequence[int]],
    trains: Sequence[bool],
) -> list[BackwardMarks]:
    """Return marks that want a diff where an earlier layer learns, unless ``propagate_down`` says otherwise."""
    wants_diff: dict[int, bool] = {}
    marks: list[BackwardMarks] = []
    for index, spec in enumerate(specs):
        incoming = [wants_diff[edge] for edge in bottoms[index]]
        needs = any(incoming) or trains[index]
        propagate = spec.param.propagate_down
        if propagate and len(propagate) != len(incoming):
            raise spec.error(
                f"propagate_down must be given once a bottom ({len(incoming)}), not {len(propagate)} times",
                "propagate_down",
            )
        marks.append(BackwardMarks(needs, list(propagate) or incoming))
        for edge in tops[index]:
            wants_diff[edge] = needs
    return marks


def _sweep_backward(
    marks: Sequence[BackwardMarks],
    bottoms: Sequence[Sequence[int]],
    tops: Sequence[Sequence[int]],
    loss_weights: Sequence[float],
) -> None:
    """Drop a diff if no later layer counts towards the loss, or none gives a diff back."""
    under_loss: set[int] = set()
    no_diff: set[int] = set()
    for index in reversed(range(len(marks))):
        mark = marks[index]
        contributes = any(loss_weights[edge] or edge in under_loss for edge in tops[index])
        if mark.layer and tops[index] and all(edge in no_diff and not loss_weights[edge] for edge in tops[index]):
            mark.layer, mark.bottoms = False, [False] * len(mark.bottoms)
        mark.layer = mark.layer and contributes
        for position, edge in enumerate(bottoms[index]):
            if contributes:
                under_loss.add(edge)
            else:
                mark.bottoms[position] = False
            if not mark.bottoms[position]:
                no_diff.add(edge)


def _check_possible(spec: LayerSpec, mark: BackwardMarks, allowed: Sequence[bool]) -> None:
    for bottom, wanted in enumerate(mark.bottoms):
        if mark.layer and wanted and not allowed[bottom]:
            raise spec.error(
                f'{spec.type} cannot give bottom "{spec.bottom_names[bottom]}" a diff, but earlier layers or '
                "propagate_down need it; set propagate_down: false for it",
                "bottom",
                bottom,
            )
