"""What the outer layer cannot do is refused at its place, with a remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from bpt.errors import LayerError, PrototxtError
from bpt.net import Net
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource, read_solver
from bpt.server.legality import apart, check_outer, check_text, of_node, samples_of, without_effect
from tests.golden_cases import graph_of
from tests.layers.test_hdf5_data import write


def solver(folder: Path, *lines: str) -> SolverSource:
    path = folder / "solver.prototxt"
    path.write_text("\n".join(['base_lr: 0.1 lr_policy: "fixed" max_iter: 10', *lines]))
    return read_solver(path)


def outer(folder: Path, text: str, exchange: str = "AGWU") -> SolverSource:
    """``text`` on line 3, column 1."""
    return solver(folder, f"parallel_param {{ exchange: {exchange}", text, "}")


@pytest.mark.parametrize("check", [check_outer, check_text])
@pytest.mark.parametrize(
    ("exchange", "text"),
    [
        ("SGWU", ""),
        ("AGWU", "num_stages: 1 num_shards: 1 balance: IDPA balance_param { num_batches: 1 rule: PAPER }"),
        ("AGWU", "balance: UNIFORM agwu_param { local_epochs: 3 max_staleness: 7 normalizer: ALL }"),
        ("ASGD", "agwu_param { push: 3 fetch: 2 } server: COLOCATED ship_data: true"),
        ("ASGD", "agwu_param { max_staleness: 4 }"),
        ("AGWU", "agwu_param { max_staleness: 4 fetch: 2 }"),  # fetch has no effect
        ("ASGD", "num_stages: 2 pipeline_param { schedule: GPIPE micro_batches: 4 } ship_data: true"),
        ("SGWU", "num_stages: 3 balance: IDPA server: DEDICATED"),
    ],
)
def test_what_can_be_run_passes(check: type, exchange: str, text: str, tmp_path: Path) -> None:
    check(outer(tmp_path, text, exchange))


@pytest.mark.parametrize("check", [check_outer, check_text])
@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (
            "num_shards: 4", 1, "exchange: AGWU trains a whole net on each rank, or on the stages of a pipeline; "
            "num_shards: 4 does not go with it; leave it out"
        ),
        ("num_stages: 0", 1, "num_stages is 0; it must be at least 1"),
        ("num_stages: 2 pipeline_param { micro_batches: 0 }", 32, "micro_batches is 0; it must be at least 1"),
        (
            "num_stages: 2 pipeline_param { schedule: DELAYED }", 32, "schedule: DELAYED does not go with exchange: "
            "AGWU: between two iterations there are batches under way, which would go on with other weights when new "
            "ones come; use GPIPE or ONE_F_ONE_B"
        ),
        (
            "num_stages: 2 server: COLOCATED", 15, "server: COLOCATED does not go with num_stages: 2: a stage waits "
            "for the others of its pipeline in most of its calls, and the server must never wait; leave it out: rank 0 "
            "only serves"
        ),
        (
            "balance: STATIC", 1, "balance: STATIC divides the batches of a synchronous exchange; exchange: AGWU "
            "divides the data set: use balance: IDPA or UNIFORM"
        ),
        ("agwu_param { local_epochs: 0 }", 14, "local_epochs is 0; it must be at least 1"),
        ("agwu_param { max_staleness: -1 }", 14, "max_staleness is -1; it must be at least 0"),
        ("agwu_param { push: 0 }", 14, "push is 0; it must be at least 1"),
        ("agwu_param { fetch: -3 }", 14, "fetch is -3; it must be at least 1"),
        ("balance_param { num_batches: 0 }", 17, "num_batches is 0; it must be at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_is_refused(check: type, text: str, column: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check(outer(tmp_path, text))
    assert str(caught.value) == f"{tmp_path}/solver.prototxt:3:{column}: parallel_param: {message}"


def test_falling_behind_on_purpose_and_bounded_staleness(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check_outer(outer(tmp_path, "agwu_param { max_staleness: 9 fetch: 2 }", "ASGD"))
    assert str(caught.value) == (
        f"{tmp_path}/solver.prototxt:3:31: parallel_param: fetch: 2 lets a worker fall behind on purpose, and "
        "max_staleness forbids it; leave one of them out"
    )


def test_debug_info(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check_outer(solver(tmp_path, "parallel_param { exchange: SGWU } debug_info: true"))
    assert str(caught.value) == (
        f"{tmp_path}/solver.prototxt:2:35: debug_info: true looks at one net, and with exchange: SGWU every rank has "
        "its own; leave it out"
    )


def test_the_rest_of_the_text_is_checked_as_well(tmp_path: Path) -> None:
    for exchange in ("AGWU", "ALLREDUCE"):
        with pytest.raises(PrototxtError, match=r"solver.prototxt:2:1: display is -1; it must be at least 0"):
            check_text(solver(tmp_path, "display: -1", f"parallel_param {{ exchange: {exchange} }}"))


def test_apart(tmp_path: Path) -> None:
    """What is left of parallel_param is what a process does by itself; the text itself stays as it is."""
    source = outer(tmp_path, "inner_param { engine: TASK_DAG num_threads: 2 } server: COLOCATED")
    alone = apart(source)
    assert alone.param.parallel_param == text_format.Parse(
        "inner_param { engine: TASK_DAG num_threads: 2 }", pb.ParallelParameter()
    )
    assert alone.param.max_iter == 10 and alone.path == source.path
    assert not apart(outer(tmp_path, "")).param.HasField("parallel_param")
    assert source.param.parallel_param.exchange == pb.ParallelParameter.AGWU


def test_of_node(tmp_path: Path) -> None:
    """A pipeline keeps its stages; a worker alone is apart."""
    source = outer(tmp_path, "num_stages: 2 pipeline_param { micro_batches: 3 } balance: IDPA inner_param { }")
    assert of_node(source).param.parallel_param == text_format.Parse(
        "num_stages: 2 pipeline_param { micro_batches: 3 } inner_param { }", pb.ParallelParameter()
    )
    assert not of_node(outer(tmp_path, "balance: IDPA pipeline_param { }")).param.HasField("parallel_param")


@pytest.mark.parametrize(
    ("text", "remarks"),
    [
        ("exchange: AGWU agwu_param { normalizer: ALL local_epochs: 2 max_staleness: 3 weigh_by_accuracy: true }", []),
        ("exchange: SGWU agwu_param { local_epochs: 2 weigh_by_accuracy: false }", []),
        ("exchange: ASGD agwu_param { push: 2 fetch: 3 max_staleness: 0 }", []),
        ("exchange: ASGD num_stages: 2 pipeline_param { micro_batches: 2 }", []),
        ("exchange: AGWU balance: IDPA balance_param { num_batches: 3 rule: PAPER }", []),
        (
            "exchange: SGWU agwu_param { normalizer: ALL max_staleness: 1 push: 1 fetch: 1 }",
            [
                f"agwu_param {{ {field} }} has no effect with exchange: SGWU"
                for field in ("normalizer", "max_staleness", "push", "fetch")
            ],
        ),
        (
            "exchange: ASGD agwu_param { normalizer: ALL local_epochs: 1 weigh_by_accuracy: true }",
            [
                f"agwu_param {{ {field} }} has no effect with exchange: ASGD"
                for field in ("normalizer", "local_epochs", "weigh_by_accuracy")
            ],
        ),
        (
            "exchange: AGWU balance_param { num_batches: 3 rule: PAPER }",
            [
                "balance_param { num_batches } has no effect without balance: IDPA",
                "balance_param { rule } has no effect without balance: IDPA",
            ],
        ),
        (
            "exchange: AGWU balance: IDPA balance_param { profile: 'speed.json' normalizer: UNIFORM }",
            [
                "balance_param { profile } has no effect with exchange: AGWU",
                "balance_param { normalizer } has no effect with exchange: AGWU",
            ],
        ),
        (
            "exchange: AGWU cgdp_param { } fc_param { } pipeline_param { } sync_batch_norm: true batch_scope: REPLICA",
            [
                f"{field} has no effect with exchange: AGWU"
                for field in ("cgdp_param", "fc_param", "pipeline_param", "sync_batch_norm", "batch_scope")
            ],
        ),
    ],
)
def test_what_has_no_effect(text: str, remarks: list[str]) -> None:
    assert list(without_effect(text_format.Parse(text, pb.ParallelParameter()))) == remarks


def test_what_has_no_effect_in_any_of_several_ways() -> None:
    text = "agwu_param { push: 2 max_staleness: 9 } balance_param { rule: PAPER } exchange: "
    ways = [text_format.Parse(text + exchange, pb.ParallelParameter()) for exchange in ("SGWU", "AGWU balance: IDPA")]
    assert list(without_effect(*ways)) == [
        "agwu_param { push } has no effect with exchange: SGWU or with exchange: AGWU"
    ]


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
        'layer "three": has 5 samples, but layer "one" has 7: a worker could not tell which belong together; use '
        "exchange: ALLREDUCE"
    )


def test_batches_that_must_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    write(tmp_path / "one", {"one": np.zeros((6, 2))})
    (tmp_path / "one.txt").write_text(f"{tmp_path}/one/0.h5\n")
    data = f'hdf5_data_param {{ source: "{tmp_path}/one.txt" batch_size: 6 }}'
    shape = "shape { dim: 3 dim: 2 dim: 2 }"
    text = f"""layer {{ name: "one" type: "HDF5Data" top: "one" {data} }}
        layer {{ name: "steps" type: "Reshape" bottom: "one" top: "s" reshape_param {{ {shape} }} }}"""
    with pytest.raises(LayerError) as caught:
        samples_of(Net(graph_of(text)), pb.ParallelParameter.AGWU)
    assert str(caught.value).endswith(
        'layer "steps": it makes (3, 2, 2) of (6, 2), which changes axis 0, the samples, so its batches must stay as '
        "the data set has them, but SGWU, AGWU and ASGD deal samples out one by one; use exchange: ALLREDUCE with "
        "batch_scope: REPLICA"
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
