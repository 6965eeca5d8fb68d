"""What layer classes say of themselves, held against what they do, for every type at settings that are drawn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some
from torch import Tensor

from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto import fork_fields
from bpt.graph.share import Share
from bpt.nn.layers import LAYERS, Layer
from bpt.nn.layers.layer_text import settings_of
from bpt.nn.pass_context import PassContext
from tests.support.gradients import blobs, forks_losses, losses, neurons, products, recurrent, regions, windows  # noqa: F401  (they enter their cases)
from tests.support.gradients.cases import CASES, Case, body
from tests.support.gradients.without import BLOB, CASES_WITHOUT
from tests.support.one_layer import tops_of

WITHOUT_GRADIENT = {**CASES_WITHOUT, "Silence": Case(body("Silence"), (BLOB,), tops=0)}
ALL = CASES | {kind: some.just(case) for kind, case in WITHOUT_GRADIENT.items()}
every_type = pytest.mark.parametrize("kind", sorted(ALL))
drawn = settings(
    deadline=None,
    derandomize=True,
    max_examples=6,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)

OF_ALL = "what it makes is of all samples together"
NAMED = "its rows name their sample"
DRAWS = "it draws for the samples that it sees"
# Types that are not, or not always, split by samples, and why.
NOT_BY_SAMPLE = {
    "BN": OF_ALL,
    "BatchNorm": OF_ALL,
    "BatchReindex": OF_ALL,
    "DetectionEvaluate": NAMED,
    "DetectionOutput": NAMED,
    "Dropout": DRAWS,
    "Embed": "each part would make a gradient of all weights",
    "Filter": OF_ALL,
    "Pooling": DRAWS,
    "PriorBox": "it makes the same for all samples",
    "Python": "who knows",
    "Reshape": "its text may tell the number of samples; and it costs nothing",
    "SPP": DRAWS,
    "Silence": "it makes nothing",
    "HDF5Output": "it writes samples in their order",
    "ImResize": "its samples are scales of one image",
    "MarginInnerProduct": "it brings its weights to length 1",
    **dict.fromkeys(
        ("BoxAnnotatorOHEM", "PSROIPooling", "Proposal", "ROIAlign", "ROIPooling"), "its regions are of any images"
    ),
    **dict.fromkeys(("Accuracy", "SegAccuracy", *(kind for kind in LAYERS if LAYERS[kind].is_loss)), OF_ALL),
    **dict.fromkeys(("LSTM", "LSTMUnit", "RNN"), "its samples are on axis 1"),
    **dict.fromkeys((kind for kind in LAYERS if LAYERS[kind].arity.bottoms[1] == 0), "it has no bottoms"),
}


def made(case: Case, context: PassContext | None = None) -> Layer:
    try:
        return case.layer(context)
    except LayerError:  # a kernel larger than the bottom and the like
        assume(False)
        raise


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_every_type_that_computes_is_here() -> None:
    assert set(LAYERS) - set(ALL) == {
        "HDF5Output", "Input", "DummyData", *(kind for kind in LAYERS if kind.endswith("Data")),
    }  # fmt: skip


@every_type
@drawn
@given(data=some.data())
def test_an_elementwise_layer_makes_of_a_slice_the_slice(kind: str, data: some.DataObject) -> None:
    case: Case = data.draw(ALL[kind])
    layer = made(case)
    if not layer.elementwise:
        return
    assert not layer.blobs and len(case.bottoms) == case.tops == 1
    if not layer.sample_independent:
        layer.eval()
    (bottom,) = case.bottoms
    (top,) = tops_of(layer, bottom)
    assert top.shape == bottom.shape
    for axis, size in enumerate(bottom.shape):
        for start in range(size):
            same(tops_of(layer, bottom.narrow(axis, start, 1))[0], top.narrow(axis, start, 1))


def test_layers_of_one_blob_without_parameters_that_keep_its_shape_are_elementwise_or_known() -> None:
    """Each that is not is slow behind a layer that num_shards splits."""
    x = BLOB.unsqueeze(3)
    keep = set()
    for kind in LAYERS:
        if LAYERS[kind].arity.bottoms == (1, 1) == LAYERS[kind].arity.tops:
            try:
                layer = Case(body(kind), (x,)).layer()
            except LayerError:  # it does not go without settings
                continue
            if not layer.blobs and [top.shape for top in tops_of(layer, x)] == [x.shape]:
                keep.add(kind)
    others = {"LRN", "MVN", "Permute", "ShuffleChannel", "Softmax"}
    assert {kind for kind in keep if not LAYERS[kind].elementwise} == others


@every_type
@drawn
@given(data=some.data())
def test_a_view_is_its_bottoms_memory(kind: str, data: some.DataObject) -> None:
    case: Case = data.draw(ALL[kind])
    layer = made(case)
    if not layer.is_view:
        return
    for top in tops_of(layer, *case.bottoms):
        assert top.data_ptr() == case.bottoms[0].data_ptr()
        assert torch.equal(top.flatten(), case.bottoms[0].flatten())


@every_type
@drawn
@given(data=some.data())
def test_a_layer_by_sample_makes_of_samples_theirs(kind: str, data: some.DataObject) -> None:
    case: Case = data.draw(ALL[kind])
    layer = made(case)
    samples = {shape[:1] for shape in case.shapes}
    if (
        not layer.sample_independent
        or len(samples) > 1
        or () in samples
        or layer.mixes_samples(layer.spec, case.shapes)
    ):
        return

    def refuse(bottom: Tensor) -> Share:
        raise AssertionError("asks which samples it has")

    layer.share_of = refuse  # type: ignore[method-assign]
    tops = tops_of(layer, *case.bottoms)
    for start in range(case.shapes[0][0]):
        parts = tops_of(layer, *(bottom[start : start + 1] for bottom in case.bottoms))
        for top, part in zip(tops, parts, strict=True):
            if top.dim():  # else it has no axis of samples
                same(part, top[start : start + 1])


def test_all_other_layers_have_a_reason_why_samples_stay_together() -> None:
    """A type that is in neither would run on one thread, and nobody would know."""
    sample_independent = {kind for kind in LAYERS if LAYERS[kind].sample_independent}
    assert sample_independent | set(NOT_BY_SAMPLE) == set(LAYERS)
    assert not sample_independent & set(NOT_BY_SAMPLE)


@pytest.mark.parametrize(
    "kind",
    sorted(
        kind
        for kind in ALL
        if not LAYERS[kind].computes or LAYERS[kind].reread.__func__ is not Layer.reread.__func__  # type: ignore[attr-defined]
    ),
)
@drawn
@given(data=some.data())
def test_a_layer_whose_backward_reads_nothing_again_is_linear_in_its_bottoms(kind: str, data: some.DataObject) -> None:
    case: Case = data.draw(ALL[kind])
    layer = made(case)
    tops = tops_of(layer, *case.bottoms)
    shapes = [tuple(top.shape) for top in tops]
    if case.constant or case.shapes_by_data or layer.reread(layer.spec, case.shapes, shapes):
        return

    def diffs(shift: float) -> list[Tensor | None]:
        bottoms = [(bottom * (1 - shift) + shift).requires_grad_() for bottom in case.bottoms]
        tops = [top for top in tops_of(layer, *bottoms) if top.requires_grad]
        if not tops or not bottoms:
            return []
        starts = [torch.arange(1.0, top.numel() + 1, dtype=top.dtype).reshape(top.shape) for top in tops]
        return list(torch.autograd.grad(tops, bottoms, starts, allow_unused=True))

    for here, there in zip(diffs(0), diffs(0.25), strict=True):
        assert (here is None) == (there is None)
        if here is not None and there is not None:
            same(here, there)


@every_type
@drawn
@given(data=some.data())
def test_a_silent_layer_calls_no_other_rank(kind: str, data: some.DataObject) -> None:
    def refuse(tensor: Tensor, layer: str) -> Tensor:
        raise AssertionError("calls the other ranks")

    case: Case = data.draw(ALL[kind])
    if all(case.shapes):
        context = PassContext(7, split=lambda samples: Share(0, samples, 2 * samples), ranks=2, total=refuse)
        layer = made(case, context)
        if layer.no_collectives or layer.sample_independent:
            tops_of(layer, *case.bottoms)


@pytest.mark.parametrize(("text", "stored"), [("", False), ("use_global_stats: true", True)])
def test_batch_norm_says_which_statistics_it_normalises_by(text: str, stored: bool) -> None:
    for phase, by_stored in ((pb.TRAIN, stored), (pb.TEST, True)):
        case = Case(f'type: "BatchNorm" batch_norm_param {{ {text} }}', (BLOB,), phase=phase)
        layer = case.layer()
        assert layer.normalises_by_batch(layer.spec) != by_stored
        assert layer.sample_independent == by_stored
        assert layer.syncs(layer.spec, True) != by_stored
        assert not layer.syncs(layer.spec, False)
        (top,) = tops_of(layer, BLOB)
        assert torch.allclose(tops_of(layer, BLOB[:2])[0], top[:2]) == by_stored


@every_type
@drawn
@given(data=some.data())
def test_a_bias_blob_is_added_to_whole_channels(kind: str, data: some.DataObject) -> None:
    case: Case = data.draw(ALL[kind])
    layer = made(case)
    index = LAYERS[kind].bias_blob
    if index is None or len(layer.blobs) <= index or getattr(layer, "axis", 1) != 1:
        return
    with torch.no_grad():
        before = tops_of(layer, *case.bottoms)
        layer.blobs[index].add_(torch.arange(1.0, len(layer.blobs[index]) + 1))
        for old, new in zip(before, tops_of(layer, *case.bottoms), strict=True):
            added = torch.arange(1.0, old.shape[1] + 1, dtype=old.dtype).reshape(-1, *[1] * (old.dim() - 2))
            same(new - old, added.expand(old.shape))


def test_every_field_of_the_schema_that_says_where_a_file_lies_is_some_layers() -> None:
    """What a layer reads and does not name is not compared between hosts, and bpt doctor does not see it."""
    named = {place for kind in LAYERS for place, _ in LAYERS[kind].files}
    read = {field for kind in LAYERS for field in (settings_of(kind), *LAYERS[kind].reads)}
    passed_over = {
        (message, name)
        for table in (fork_fields.NO_EFFECT, fork_fields.REFUSED)
        for message, fields in table.items()
        for name in fields
    }
    found = {
        f"{field.name}.{inner.name}"
        for field in pb.LayerParameter.DESCRIPTOR.fields
        if field.message_type is not None and field.name in read
        for inner in field.message_type.fields
        if (inner.name in ("source", "root_folder") or inner.name.endswith("_file"))
        and (field.message_type.name, inner.name) not in passed_over
    }
    with_old = ("data_param", "image_data_param", "video_data_param", "window_data_param")
    old = {f"{field}.mean_file" for field in with_old}
    old |= {"video_data_param.video_file"}  # of another fork's, refused
    # Of types that are not there yet.
    absent = ("annotated_data_param", "dense_image_data_param", "detection_evaluate_param", "detection_output_param")
    assert found - named == old | {place for place in found - named if place.startswith(absent)}
    assert named <= found  # the others have no effect in today's format
