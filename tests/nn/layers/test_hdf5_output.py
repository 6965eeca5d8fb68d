"""HDF5Output: the datasets that a real Caffe wrote, rows of several passes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bpt.base.errors import LayerError
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of
from tests.support.one_layer import one_layer
from tests.support.paths import GOLDEN


def content(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in file}


def body(path: object) -> str:
    return f'type: "HDF5Output" hdf5_output_param {{ file_name: "{path}" }}'


def test_what_caffe_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = next(case for case in json.loads((GOLDEN / "data/data.json").read_text()) if case["name"] == "hdf5output")
    recorded = np.load(GOLDEN / "data/data.npz")
    net = Net(graph_of(case["prototxt"]), PassContext())
    net.layers[1](*(torch.from_numpy(recorded[f"hdf5output/in/{name}"]) for name in ("a", "b")))
    ours, theirs = content(tmp_path / "hdf5_output.h5"), content(GOLDEN / "data/hdf5_output.h5")
    assert ours.keys() == theirs.keys() == {"data", "label"}
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, strict=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_passes_append(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "out.h5"
    layer = one_layer(body(path), (2, 3, 4, 5), (2,), tops=0)
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randn(rows, 3, 4, 5, generator=generator, dtype=dtype) for rows in (2, 2, 0, 1)]
    for batch in batches:
        assert layer(batch.to(memory_format=torch.channels_last).requires_grad_(), batch[:, 0, 0, 0]) == ()
    written = content(path)
    np.testing.assert_array_equal(written["data"], torch.cat(batches).numpy(), strict=True)
    np.testing.assert_array_equal(written["label"], torch.cat(batches)[:, :1, :1, :1].numpy(), strict=True)


def test_a_net_that_does_not_run_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    path.write_text("old")
    layer = one_layer(body(path), (2, 3), (2,), tops=0)
    assert path.read_text() == "old"
    layer(torch.zeros(2, 3), torch.zeros(2))
    layer = one_layer(body(path), (2, 3), (2,), tops=0)
    layer(torch.ones(2, 3), torch.ones(2))
    assert content(path)["label"].shape == (2, 1, 1, 1)


def test_samples_stay_together(tmp_path: Path) -> None:
    layer = one_layer(body(tmp_path / "out.h5"), (2, 3), (2,), tops=0)
    assert layer.mixes_samples(layer.spec, [(2, 3), (2,)]) == "it writes the samples of a whole batch to one file"


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(LayerError, match=r'layer "L": .*none/out\.h5: could not be written: there is no folder'):
        one_layer(body(tmp_path / "none" / "out.h5"), (2, 3), (2,), tops=0)
