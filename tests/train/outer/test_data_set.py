"""How many samples there are to divide among workers, and data that cannot be divided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.base.errors import LayerError, PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.parallel.balance.divisible_batches import samples_together
from bpt.train.outer.data_set import samples_of
from tests.support.golden_cases import graph_of
from tests.support.hdf5_files import write


def net(folder: Path, **rows: int) -> Net:
    """With an HDF5Data layer for each name, of so many samples."""
    layers = ""
    for name, count in rows.items():
        (folder / name).mkdir()
        write(folder / name, {name: np.zeros((count, 2))})
        (folder / f"{name}.txt").write_text(f"{folder}/{name}/0.h5\n")
        layers += f'''layer {{ name: "{name}" type: "HDF5Data" top: "{name}"
            hdf5_data_param {{ source: "{folder}/{name}.txt" batch_size: 2 }} }}\n'''
    return Net(graph_of(layers))


def test_samples(tmp_path: Path) -> None:
    assert samples_of(net(tmp_path, one=7, two=7), pb.ParallelParameter.AGWU) == 7


def test_data_layers_that_differ(tmp_path: Path) -> None:
    with pytest.raises(LayerError) as caught:
        samples_of(net(tmp_path, one=7, two=7, three=5), pb.ParallelParameter.AGWU)
    assert str(caught.value).endswith(
        'layer "three": has 5 samples, but layer "one" has 7: a worker could not know which belong together; use '
        "exchange: ALLREDUCE"
    )


@pytest.mark.parametrize("rows", [12, 14])
def test_batches_that_must_stay_whole(rows: int, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    write(tmp_path / "one", {"one": np.zeros((rows, 2))})
    (tmp_path / "one.txt").write_text(f"{tmp_path}/one/0.h5\n")
    data = f'hdf5_data_param {{ source: "{tmp_path}/one.txt" batch_size: 6 }}'
    shape = "shape { dim: 3 dim: 2 dim: 2 }"
    text = f"""layer {{ name: "one" type: "HDF5Data" top: "one" {data} }}
        layer {{ name: "steps" type: "Reshape" bottom: "one" top: "s" reshape_param {{ {shape} }} }}"""
    net = Net(graph_of(text))
    assert samples_together(net.graph) == 6
    if rows == 12:
        assert samples_of(net, pb.ParallelParameter.AGWU) == 12
        return
    with pytest.raises(LayerError) as caught:
        samples_of(net, pb.ParallelParameter.AGWU)
    assert str(caught.value).endswith(
        'layer "steps": it makes (3, 2, 2) of (6, 2), which changes axis 0, the samples, so workers get whole batches '
        "of 6, but the data set has 14 samples, which are 2.333 of these; bring the data set to a multiple of 6 "
        "samples, or use exchange: ALLREDUCE with batch_scope: REPLICA"
    )


def test_no_data_set() -> None:
    made = Net(graph_of('layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 } } }'))
    with pytest.raises(PrototxtError) as caught:
        samples_of(made, pb.ParallelParameter.ASGD)
    assert str(caught.value) == (
        "the training net has no layer that reads a data set, which exchange: ASGD could divide among the workers; use "
        "exchange: ALLREDUCE"
    )


def test_arrays_given_in_python() -> None:
    sizes = "batch_size: 2 channels: 1 height: 1 width: 1"
    text = f'layer {{ name: "m" type: "MemoryData" top: "x" top: "y" memory_data_param {{ {sizes} }} }}'
    with pytest.raises(LayerError) as caught:
        samples_of(Net(graph_of(text)), pb.ParallelParameter.SGWU)
    assert str(caught.value) == (
        'layer "m": its arrays are given to one process, in Python; SGWU, AGWU and ASGD need a data set on disk'
    )
