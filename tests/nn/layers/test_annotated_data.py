"""AnnotatedData: images and rows of objects, the same on any ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.base.errors import DataError, LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.lmdb_file import LmdbWriter
from bpt.graph.share import Share
from tests.support.data_readers import Make
from tests.support.golden_cases import graph_of
from tests.support.layer_ranks import rows_of, shares_of
from tests.support.lmdbs import write_annotated, write_images

NUMBER = 10
AUGMENTED = """transform_param { mirror: true mean_value: 104 num_workers: 2
      distort_param { brightness_prob: 0.5 brightness_delta: 32 hue_prob: 0.5 hue_delta: 18 }
      expand_param { prob: 0.5 max_expand_ratio: 2 } resize_param { height: 16 width: 16 } }
    annotated_data_param { batch_sampler { max_sample: 1 max_trials: 1 }
      batch_sampler { max_sample: 1 max_trials: 20 sampler { min_scale: 0.5 } sample_constraint { min_jaccard_overlap:
      0.2 } } }"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (3, 12, 14), dtype=np.uint8) for _ in range(NUMBER)]
    objects = []
    for index in range(NUMBER):
        corners = random.uniform(0, 0.5, (index % 3, 2))
        rows = np.concatenate((np.zeros((len(corners), 2)), corners, corners + 0.4, np.zeros((len(corners), 1))), 1)
        rows[:, 0], rows[:, 1] = index + 1, np.arange(len(corners))
        objects.append(rows)
    return write_annotated(tmp_path / "lmdb", images, objects)


def text(source: str, more: str = "", batch: int = 5, tops: str = 'top: "data" top: "label"', data: str = "") -> str:
    own = f'data_param {{ source: "{source}" batch_size: {batch} backend: LMDB {data} }}'
    return f'layer {{ name: "in" type: "AnnotatedData" {tops} {own} {more} }}'


def test_rows_of_objects(reader: Make, source: str) -> None:
    graph = graph_of(text(source))
    assert [edge.shape for edge in graph.edges] == [(5, 3, 12, 14), (1, 1, 1, 8)]
    data, label = reader(text(source)).next()
    assert data.shape == (5, 3, 12, 14)
    assert label.shape == (1, 1, 4, 8)  # images 1 and 4 have one object each, 2 has two, 0 and 3 none
    assert label[0, 0, :, :3].tolist() == [[1, 2, 0], [2, 3, 0], [2, 3, 1], [4, 5, 0]]
    torch.testing.assert_close(label[0, 0, :, 5:7] - label[0, 0, :, 3:5], torch.full((4, 2), 0.4))
    (only,) = reader(text(source, batch=1)).next()[1:]
    assert only.tolist() == [[[[-1] * 8]]]


def merged(parts: list[list[torch.Tensor]], rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch of all ranks: images in its order, and rows that name their image in it."""
    order = torch.tensor([row for own in rows for row in own]).argsort()
    images = torch.cat([data for data, _ in parts])[order]
    objects = []
    for (_, label), own in zip(parts, rows, strict=True):
        real = label[0, 0][label[0, 0, :, 0] >= 0].clone()
        real[:, 0] = torch.tensor([own[int(place)] for place in real[:, 0]])
        objects.append(real)
    table = torch.cat(objects)
    return images, table[table[:, 0].argsort(stable=True)]


@pytest.mark.parametrize("counts", [(2, 0, 3), (4, 1)])
@pytest.mark.parametrize("more", ["", AUGMENTED])
def test_ranks_together_have_the_batch_of_one(reader: Make, source: str, more: str, counts: tuple[int, ...]) -> None:
    whole = reader(text(source, more, data="shuffle: true"))
    ranks = [reader(text(source, more, data="shuffle: true"), share, len(counts)) for share in shares_of(counts)]
    for batch in range(5):  # two and a half epochs: shares are turned
        data, label = whole.next(batch)
        parts = [rank.next(batch) for rank in ranks]
        rows = [rows_of(share, rank.rotation) for share, rank in zip(shares_of(counts), ranks, strict=True)]
        images, objects = merged(parts, rows)
        assert torch.equal(images, data)
        assert torch.equal(objects, label[0, 0][label[0, 0, :, 0] >= 0])
    assert ranks[0].rotation > 0


def test_it_goes_on_where_it_stopped(reader: Make, source: str) -> None:
    first, second = reader(text(source, AUGMENTED)), reader(text(source, AUGMENTED))
    for batch in range(3):
        first.next(batch)
    second.layer.position = 15
    for ours, theirs in zip(first.next(3), second.next(3), strict=True):
        assert torch.equal(ours, theirs)


def test_without_boxes_labels(reader: Make, tmp_path: Path) -> None:
    with LmdbWriter(tmp_path / "plain") as writer:
        for label in (3, 4):
            datum = pb.Datum(channels=1, height=2, width=2, data=b"abcd", label=label)
            writer.put(pb.AnnotatedDatum(datum=datum))
    net = text(str(tmp_path / "plain"), batch=2)
    assert [edge.shape for edge in graph_of(net).edges] == [(2, 1, 2, 2), (2,)]
    assert reader(net).next()[1].tolist() == [3, 4]


def test_what_is_refused(source: str, tmp_path: Path) -> None:
    plain = write_images(tmp_path / "datum", [np.zeros((3, 4, 4), np.uint8)])
    with pytest.raises(DataError, match="an LMDB of plain Datum records needs a Data layer"):
        graph_of(text(plain))
    wrong = text(source, "transform_param { crop_size: 13 }")
    with pytest.raises(LayerError, match="crop_size 13 is larger than the image 3×12×14"):
        graph_of(wrong)
    data = (
        f'layer {{ name: "in" type: "Data" top: "data" data_param {{ source: "{plain}" batch_size: 1 backend: LMDB }} '
    )
    with pytest.raises(LayerError, match="resize_param is there for layers of type AnnotatedData only"):
        graph_of(data + "transform_param { resize_param { height: 3 width: 3 } } }")


def test_a_rank_without_samples(reader: Make, source: str) -> None:
    data, label = reader(text(source, AUGMENTED), Share(0, 0, 5), 2).next()
    assert data.shape == (0, 3, 16, 16)
    assert label.tolist() == [[[[-1] * 8]]]
