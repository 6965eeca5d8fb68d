"""HDF5Data: shuffling, and files that are not as they should be. Caffe's own batches: test_data.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from torch import Tensor

from bpt.base.errors import LayerError
from bpt.data import hdf5_file
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of
from tests.support.hdf5_files import numbered, text, write


def labels(net: Net, batches: int) -> list[int]:
    result = []
    for _ in range(batches):
        values: dict[int, Tensor] = {}
        net.run(0, 1, values)
        rows, label = values[0].numpy(), values[1].numpy()
        np.testing.assert_array_equal(rows, np.stack([label, -label], axis=1))
        result += label.astype(int).tolist()
    return result


def test_shuffle_permutes_files_and_their_rows_anew_every_epoch(tmp_path: Path) -> None:
    source = write(tmp_path, numbered(0, 5), numbered(5, 4), numbered(9, 3))
    net = Net(graph_of(text(source, "batch_size: 3 shuffle: true")), PassContext(seed=1))
    assert [edge.shape for edge in net.graph.edges] == [(3, 2), (3,)]
    epochs = [labels(net, 4) for _ in range(6)]
    file_of = np.repeat([0, 1, 2], [5, 4, 3])
    for epoch in epochs:
        assert sorted(epoch) == list(range(12))
        assert len(list(dict.fromkeys(file_of[epoch].tolist()))) == 1 + np.count_nonzero(np.diff(file_of[epoch]))
    assert len({tuple(epoch) for epoch in epochs}) == 6
    layer: Any = net.layers[0]
    layer.position = 12
    assert labels(net, 4) == epochs[1]
    net.close()


def test_missing_dataset_and_its_neighbours(tmp_path: Path) -> None:
    source = write(tmp_path, {"data": np.zeros((2, 1)), "labels": np.zeros(2)})
    with pytest.raises(LayerError, match=r'layer "d": .*0.h5: has no dataset "label", .*did you mean "labels"'):
        graph_of(text(source))


ROWS = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([{"data": ROWS, "label": np.zeros(3)}], r'0.h5: datasets .*: "data" \(2, 3\), "label" \(3,\)'),
        ([{"data": ROWS[:0], "label": np.zeros(0)}], "0.h5: has no rows"),
        ([{"data": ROWS, "label": np.float32(1)}], '0.h5: dataset "label" is a single number'),
        ([{"data": ROWS, "label": np.array([b"a", b"b"])}], r'0.h5: dataset "label" holds \|S1, not numbers'),
        (
            [{"data": ROWS, "label": ROWS}, {"data": ROWS, "label": np.zeros((2, 4))}],
            r'1.h5: rows of "label" have shape \(4,\), those of .*0.h5 \(3,\)',
        ),
        ([], "list.txt: lists no HDF5 files"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, files: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(LayerError, match=f'layer "d": .*{message}'):
        graph_of(text(write(tmp_path, *files)))


def test_group_in_place_of_a_dataset(tmp_path: Path) -> None:
    source = write(tmp_path, {"data/x": ROWS, "label": ROWS})
    with pytest.raises(LayerError, match='"data" is a group, not a dataset'):
        graph_of(text(source))


def test_not_an_hdf5_file(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("list.txt\n")
    with pytest.raises(LayerError, match=r"list.txt: is not an HDF5 file, or a damaged one"):
        graph_of(text(tmp_path / "list.txt"))


def test_missing_files_say_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LayerError, match=rf"list.txt: no such file \(looked for {tmp_path}/list.txt\)"):
        graph_of(text("list.txt"))
    Path("lists").mkdir()
    Path("lists/list.txt").write_text("a.h5\n")
    looked = f"looked for {tmp_path}/a.h5 and {tmp_path}/lists/a.h5"
    with pytest.raises(LayerError, match=rf'lists/list.txt: lists "a.h5", which does not exist \({looked}\)'):
        graph_of(text("lists/list.txt"))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (text("x", ""), "hdf5_data_param needs a batch_size of at least 1"),
        (text("", "batch_size: 1"), "hdf5_data_param needs a source"),
        (text("x", outer="transform_param { scale: 2 }"), "HDF5Data does not transform its data"),
    ],
)
def test_wrong_texts(broken: str, message: str) -> None:
    with pytest.raises(LayerError, match=f'layer "d": {message}'):
        graph_of(broken)


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path, numbered(0, 2))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(LayerError, match=r"pip install 'bpt\[hdf5\]'"):
        graph_of(text(source))


def linked(folder: Path, file: h5py.File, way: str) -> None:
    """Let the rows of "data" lie in another file."""
    with h5py.File(folder / "other.h5", "w") as other:
        other["data"] = np.arange(8.0).reshape(4, 2)
    np.arange(8.0).tofile(folder / "raw")
    if way == "an external link":
        file["data"] = h5py.ExternalLink("other.h5", "/data")
    elif way == "external storage":
        file.create_dataset("data", (4, 2), np.float64, external=[(str(folder / "raw"), 0, 64)])
    else:
        layout = h5py.VirtualLayout((4, 2), np.float64)
        layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "data", (4, 2))
        file.create_virtual_dataset("data", layout)


@pytest.mark.parametrize("way", ["an external link", "external storage", "a virtual dataset"])
def test_rows_in_other_files_are_taken_only_if_that_is_said(way: str, tmp_path: Path) -> None:
    source = write(tmp_path, {"label": np.arange(4)})
    with h5py.File(tmp_path / "0.h5", "a") as file:
        linked(tmp_path, file, way)
    with pytest.raises(LayerError, match=rf'dataset "data" has rows in other files, through {way}, .* allow_external'):
        Net(graph_of(text(source)), PassContext())
    net = Net(graph_of(text(source, "batch_size: 3 allow_external: true")), PassContext())
    data, _ = net()
    assert data.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_rows_that_memory_has_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor has the file them: it has some kB."""
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file.create_dataset("data", (10**15, 2), np.float32, chunks=(1024, 2))
        file.create_dataset("label", (10**15,), np.float32, chunks=(1024,))
    (tmp_path / "list.txt").write_text("0.h5\n")
    monkeypatch.setattr(hdf5_file, "obtainable_memory", lambda device: 3 * 2**30)
    with pytest.raises(LayerError, match=r"takes 7450580\.6 GiB, but there are 3\.0 GiB of memory"):
        graph_of(text(tmp_path / "list.txt"))
