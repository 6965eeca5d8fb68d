"""What must hold of any case."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.nn.layers import Layer
from bpt.nn.layers.recurrent import Recurrent
from bpt.nn.pass_context import PassContext
from tests.support.gradient_checker import check_layer, spaced
from tests.support.gradients.cases import Case
from tests.support.layer_ranks import SEED, on_ranks, rows_of, shares_of
from tests.support.one_layer import tops_of

Results = tuple[list[Tensor], list[Tensor], list[Tensor]]


def check_case(case: Case, fast: bool) -> None:
    """Gradients, the tops' shapes, and that neither memory format, nor a pass before, nor other samples matter."""
    layer = case.layer()
    check_gradients(layer, case, fast)
    whole = run(case.layer(), case)
    check_shapes(case, whole[0])
    same(run(case.layer(), case, [channels_last(bottom) for bottom in case.bottoms]), whole, "channels last")
    if not isinstance(layer, Recurrent):  # these go on where the pass before has stopped
        same(run(layer, case), whole, "after other passes")
    if not layer.mixes_samples(layer.spec, case.shapes) and not case.by_batch and case.shapes[0]:
        check_samples_one_by_one(layer, case)


def check_gradients(layer: Layer, case: Case, fast: bool) -> None:
    """By finite differences; a layer without a gradient here must not depend on its bottoms at all."""
    if any(top.requires_grad for top in run_forward(layer, case.bottoms, case.constant)[0]):
        check_layer(layer, case.bottoms, case.constant, fast)
        return
    others = [
        bottom if index in case.constant else spaced(tuple(bottom.shape), 17)
        for index, bottom in enumerate(case.bottoms)
    ]
    torch.testing.assert_close(tops_of(layer, *others), tops_of(layer, *case.bottoms))


def check_shapes(case: Case, tops: Sequence[Tensor]) -> None:
    graph = case.graph()
    inferred = [graph.edges[edge].shape for edge in graph.nodes[-1].tops]
    first = 1 if case.shapes_by_data else 0  # axis 0 has as many samples as the data say, at most those
    assert [tuple(top.shape[first:]) for top in tops] == [shape[first:] for shape in inferred]
    assert all(top.dtype == torch.float64 for top in tops)


def check_samples_one_by_one(layer: Layer, case: Case) -> None:
    """Ranks with one sample each, and a last one with none, together make what one process makes."""
    whole = run(case.layer(PassContext(SEED)), case)
    counts = (*(1,) * case.shapes[0][0], 0)

    def on_rank(context: PassContext) -> Results:
        rows = rows_of(context.share(case.shapes[0][0]))
        return run(case.layer(context), case, case.of(rows), rows)

    parts = on_ranks(counts, on_rank)
    assert len(parts) == len(shares_of(counts))
    sums = layer.sums_over_samples
    for index, top in enumerate(whole[0]):
        own = [part[0][index] for part in parts]
        scalar = index < sums or not top.dim()
        torch.testing.assert_close(sum(own) if scalar else torch.cat(own), top, msg=lambda text: f"ranks: {text}")
    for index, diff in enumerate(whole[1]):
        torch.testing.assert_close(torch.cat([part[1][index] for part in parts]), diff)
    for index, gradient in enumerate(whole[2]):
        torch.testing.assert_close(sum(part[2][index] for part in parts), gradient)


def run(
    layer: Layer, case: Case, bottoms: Sequence[Tensor] | None = None, rows: Sequence[int] | None = None
) -> Results:
    """Tops, diffs of the bottoms that get one, and gradients of the parameters; the bottoms stay as they are."""
    given = [bottom.clone() for bottom in bottoms or case.bottoms]
    tops, leaves = run_forward(layer, bottoms or case.bottoms, case.constant)
    learned = [blob for blob in layer.blobs if blob.requires_grad]
    wanted = [top for top in tops if top.requires_grad]
    found: Sequence[Tensor] = [torch.zeros_like(leaf) for leaf in [*leaves, *learned]]
    if wanted:
        seeds = [diff_of(top, rows) for top in wanted]
        found = torch.autograd.grad(wanted, [*leaves, *learned], seeds, allow_unused=True, materialize_grads=True)
    for before, after in zip(given, bottoms or case.bottoms, strict=True):
        assert torch.equal(before, after), "a bottom was changed"
    return [top.detach().clone() for top in tops], list(found[: len(leaves)]), list(found[len(leaves) :])


def run_forward(
    layer: Layer, bottoms: Sequence[Tensor], constant: tuple[int, ...]
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    given = [bottom if index in constant else bottom.detach().requires_grad_() for index, bottom in enumerate(bottoms)]
    return tops_of(layer, *given), [bottom for bottom in given if bottom.requires_grad]


def diff_of(top: Tensor, rows: Sequence[int] | None) -> Tensor:
    """A diff that tells a top's elements apart, whichever rows of the whole batch they are in."""
    if not top.dim():
        return torch.full_like(top, 3)
    numbers = torch.arange(len(top)) if rows is None else torch.tensor(rows, dtype=torch.long)
    size = torch.Size(top.shape[1:]).numel()
    return torch.sin(numbers.unsqueeze(1) * size + torch.arange(size)).to(top.dtype).reshape(top.shape)


def channels_last(bottom: Tensor) -> Tensor:
    """The same numbers, those of a place's channels (axis 1) side by side in memory."""
    return bottom.movedim(1, -1).contiguous().movedim(-1, 1) if bottom.dim() > 2 else bottom


def same(found: Results, wanted: Results, where: str) -> None:
    torch.testing.assert_close(found, wanted, msg=lambda text: f"{where}: {text}")
