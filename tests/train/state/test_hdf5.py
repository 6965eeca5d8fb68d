"""``snapshot_format: HDF5``, where it could go wrong: order, names, diffs."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bpt.base.errors import FileError, LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rules import make_rule
from bpt.train import state as snapshot
from bpt.train.solver.solver import Solver
from bpt.train.state.hdf5 import open_weights
from bpt.train.state.hdf5_names import check_names
from tests.support import small_solver
from tests.support.small_states import NET, Small, net_of, values
from tests.support.training import solver_of

IN_HDF5 = "snapshot_format: HDF5"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_weights(path: str) -> None:
    with open_weights(path):
        pass


def names_in(path: str) -> list[str]:
    names: list[str] = []
    with h5py.File(path) as file:
        file.visit(names.append)
    return names


def test_history_goes_by_number() -> None:
    """Twelve moments: HDF5's own order has 10 and 11 before 2."""
    layers = [
        f'layer {{ name: "ip{i}" type: "InnerProduct" bottom: "x{i}" top: "x{i + 1}" inner_product_param {{ '
        f"num_output: {i + 2} }} }}"
        for i in range(3)
    ]
    text = 'layer { name: "in" type: "Input" top: "x0" input_param { shape { dim: [2, 3] } } }' + "".join(layers)
    plan = solver_of(f'type: "Adam" lr_policy: "fixed" base_lr: 0.1 snapshot_prefix: "snap" {IN_HDF5}')
    net = net_of(text)
    rule = make_rule(plan.optim, net)
    assert len(rule.history) == 12
    for index, moment in enumerate(rule.history):
        moment.fill_(index)
    path = snapshot.write(plan, net, rule, pb.SolverState(iter=1))
    with h5py.File(path) as file:
        assert list(file["history"])[:4] == ["0", "1", "10", "11"]
        assert file["history/2"][()].flatten().tolist() == [2] * 6  # the weight of ip1, 3 x 2
        assert file["history/11"][()].tolist() == [11] * 4
    for moment in rule.history:
        moment.zero_()
    snapshot.restore(path, net, rule)
    assert [moment.unique().tolist() for moment in rule.history] == [[index] for index in range(12)]


def test_names_and_layers_without_parameters() -> None:
    """A name with a slash nests, a layer without parameters is an empty group, a number is a name like others."""
    text = NET.replace('"b/ip2"', '"ip1x/0"') + 'layer { name: "7" type: "ReLU" bottom: "b" top: "b" }'
    source = net_of(text)
    snapshot.save_weights(source, "w.h5")
    assert names_in("w.h5") == [
        "data", "data/7", "data/in", "data/ip1", "data/ip1/0", "data/ip1/1",
        "data/ip1x", "data/ip1x/0", "data/ip1x/0/0", "data/ip1x/0/1",
    ]  # fmt: skip
    net = net_of(text, seed=1)
    assert snapshot.load_weights(net, "w.h5") == {"in", "7", "ip1", "ip1x/0"}
    assert values(net) == values(source)


def test_diffs_are_written_when_asked_for_and_not_read() -> None:
    plain = Small.make(f'{IN_HDF5} snapshot_prefix: "plain"')
    with_diffs = Small.make(f'{IN_HDF5} snapshot_prefix: "diffs" snapshot_diff: true')
    with_diffs.rule.updates = [torch.full(param.shape, param.index + 1.0) for param in with_diffs.net.local_params]
    files = [small.snap(3).replace("solverstate", "caffemodel") for small in (plain, with_diffs)]
    blobs = ["b/ip2/0", "b/ip2/1", "ip1/0", "ip1/1"]
    assert not [name for name in names_in(files[0]) if name.startswith("diff")]
    with h5py.File(files[1]) as file:
        assert [file[f"diff/{blob}"][()].flatten()[0] for blob in blobs] == [3, 4, 1, 2]
        assert {file[f"diff/{blob}"].dtype for blob in blobs} == {np.dtype(np.float32)}
        assert "diff/in" in file
    for path in files:
        net = net_of(seed=1)
        snapshot.load_weights(net, path)
        assert values(net) == values(plain.net)


@pytest.mark.parametrize(("here", "there"), [("", IN_HDF5), (IN_HDF5, "")])
def test_either_format_goes_on_from_the_other(here: str, there: str) -> None:
    first, second = Small.make(here), Small.make(there, seed=1)
    path = first.snap(4)
    assert second.restore(path).iter == 4
    assert values(second.net) == values(first.net)
    assert all(torch.equal(a, b) for a, b in zip(second.rule.history, first.rule.history, strict=True))
    assert second.snap(5).endswith(".solverstate.h5" if there else ".solverstate")


NOTHING = "no name at all"
ODD = {"": NOTHING, ".": NOTHING, "/abs": '"abs"', "a//b": '"a/b"', "tail/": '"tail"', "x/./y": '"x/y"'}


@pytest.mark.parametrize("name", ODD)
def test_names_that_are_others_in_hdf5_are_refused(name: str) -> None:
    """Saved under them, weights were not found again: a resumed run went on from fillers."""
    text = NET.replace('"b/ip2"', f'"{name}"')
    net = net_of(text)
    reason = (
        f'layer "{name}": HDF5 takes its name for {ODD[name]}, so its parameters would not be found again; rename the '
        "layer, or use snapshot_format: BINARYPROTO"
    )
    with pytest.raises(LayerError) as early:
        check_names(net.graph.nodes)
    assert str(early.value).endswith(reason)
    with pytest.raises(FileError) as late:
        snapshot.save_weights(net, "w.h5")
    assert str(late.value) == f"w.h5: cannot be written: {early.value}"
    assert not Path("w.h5").exists()
    snapshot.save_weights(net, "w.caffemodel")
    again = net_of(text, seed=1)
    snapshot.load_weights(again, "w.caffemodel")
    assert values(again) == values(net)


def relu(name: str) -> str:
    return f'layer {{ name: "{name}" type: "ReLU" bottom: "b" top: "b" }}'


def test_odd_names_of_layers_without_parameters() -> None:
    net = net_of(NET + relu("x//y") + relu("x/y") + relu(""))
    snapshot.save_weights(net, "w.h5")
    assert snapshot.load_weights(net, "w.h5") == {"in", "ip1", "b/ip2", "x/y"}


@pytest.mark.parametrize("odd_first", [False, True])
def test_the_name_of_another_layer_is_refused(odd_first: bool) -> None:
    """Saved with it, the file could not be read."""
    odd = 'layer { name: "b//ip2" type: "ReLU" bottom: "a" top: "a" }\n'
    last = 'layer { name: "b/ip2"'
    text = NET.replace(last, odd + last) if odd_first else NET + odd.replace('"a"', '"b"')
    first, second = ("b//ip2", "b/ip2") if odd_first else ("b/ip2", "b//ip2")
    with pytest.raises(LayerError) as caught:
        check_names(net_of(text).graph.nodes)
    assert str(caught.value).endswith(
        f'layer "{second}": HDF5 takes its name for that of layer "{first}"; rename the layer, or use '
        "snapshot_format: BINARYPROTO"
    )


@pytest.mark.parametrize("name", ["/b/ip2", "b//ip2", "b/ip2/", "b/./ip2"])
def test_caffes_files_with_such_names_are_read(name: str) -> None:
    """Caffe gives the names to HDF5 as they are."""
    source = net_of()
    snapshot.save_weights(source, "w.h5")
    net = net_of(NET.replace("b/ip2", name), seed=1)
    snapshot.load_weights(net, "w.h5")
    assert list(values(net).values()) == list(values(source).values())


def test_two_names_that_are_one_in_hdf5_are_refused() -> None:
    snapshot.save_weights(net_of(), "w.h5")
    more = 'layer { name: "b//ip2" type: "InnerProduct" bottom: "a" top: "c" inner_product_param { num_output: 2 } }'
    net = net_of(NET + more, seed=1)
    before = values(net)
    with pytest.raises(FileError) as caught:
        snapshot.load_weights(net, "w.h5")
    assert str(caught.value) == (
        'w.h5: HDF5 takes the layer names "b/ip2" and "b//ip2" for one; rename one of the layers'
    )
    assert values(net) == before


@pytest.mark.parametrize("snapshots", ["snapshot: 5 snapshot_after_train: false", ""])
def test_odd_names_are_refused_before_training(tmp_path: Path, snapshots: str) -> None:
    odd = small_solver.NET.replace('name: "conv"', 'name: "a//conv"')
    source = small_solver.small_solver(tmp_path, f"snapshot_format: HDF5 {snapshots}", net=odd)
    with pytest.raises(LayerError, match=r'net\.prototxt:6:9: layer "a//conv": HDF5 takes its name for "a/conv"'):
        Solver(source)
    for other in ("snapshot_format: BINARYPROTO", "snapshot_format: HDF5 snapshot_after_train: false"):
        Solver(small_solver.small_solver(tmp_path, other, net=odd)).close()


def test_groups_are_entered_as_deep_as_messages_are_read() -> None:
    for levels, refused in ((99, False), (100, True), (3000, True)):
        with h5py.File("deep.caffemodel.h5", "w") as file:
            group = file.create_group("data")
            for _ in range(levels):
                group = group.create_group("a")
            group["0"] = [1.0]
        if refused:
            with pytest.raises(FileError, match=r"^deep.caffemodel.h5: its groups are nested more than 100 deep$"):
                read_weights("deep.caffemodel.h5")
        else:
            read_weights("deep.caffemodel.h5")


def test_groups_that_lead_in_circles_are_refused() -> None:
    with h5py.File("w.caffemodel.h5", "w") as file:
        layer = file.create_group("data/a")
        layer["b"] = layer["c"] = file["data"]
    with pytest.raises(FileError, match='"/data/a/b" is a link to the group "/data"'):
        read_weights("w.caffemodel.h5")


@pytest.mark.parametrize("way", ["an external link", "external storage", "a virtual dataset"])
def test_values_in_other_files_are_refused(way: str) -> None:
    with h5py.File("w.caffemodel.h5", "w") as file, h5py.File("other.h5", "w") as other:
        other["values"] = np.zeros(4)
        layer = file.create_group("data/ip")
        if way == "an external link":
            layer["0"] = h5py.ExternalLink("other.h5", "values")
        elif way == "external storage":
            layer.create_dataset("0", 4, np.float64, external=[("raw", 0, 32)])
        else:
            layout = h5py.VirtualLayout(4, np.float64)
            layout[:] = h5py.VirtualSource(other["values"])
            layer.create_virtual_dataset("0", layout)
    with pytest.raises(FileError, match=f"has values in other files, through {way}; copy all into one"):
        read_weights("w.caffemodel.h5")


def test_what_is_announced_but_not_there_is_not_made_room_for() -> None:
    """A thousand million million numbers, in a file of some kB."""
    for name in ("bpt", "learned_net"):
        with h5py.File("s.solverstate.h5", "w") as file:
            file["iter"], file["current_step"] = [1], [0]
            file.create_dataset(name, (10**15,), np.uint8, chunks=(1024,))
            file.create_group("history")
        with pytest.raises(FileError, match=f"announces 1000000000000000 bytes in /{name}, and does not have them"):
            snapshot.read_state("s.solverstate.h5")
    with h5py.File("w.caffemodel.h5", "w") as file:
        for index in range(2):
            file.create_dataset(f"data/ip1/{index}", (10**15,), np.float32, chunks=(1024,))
    with pytest.raises(FileError, match="1000000000000000"):
        snapshot.load_weights(net_of(NET), "w.caffemodel.h5")
