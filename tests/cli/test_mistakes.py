"""What bad input gets at the command line, besides the mistakes that Caffe's recordings make.

Each is answered in one line: where, what, and what to do. Status 2: what the user wrote is wrong; 1: the run failed.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch

from bpt.data import batches
from bpt.data.transform import write_mean
from bpt.train.runtime import net_on_device as making
from tests.support.commands import Bpt
from tests.support.lmdbs import write_images

QUICK = "max_iter: 2 snapshot: 0 snapshot_after_train: false test_interval: 9 test_initialization: false"
TRAIN = ("train", "--solver=solver.prototxt", f"--set={QUICK}")
NET = Path("lenet_train_test.prototxt")
DATA = Path("digits_train_lmdb/data.mdb")
Change = Callable[[], object]


def edit(old: str, new: str) -> Change:
    """A change of the network's text, at the first ``old``."""

    def change() -> None:
        text = NET.read_text()
        assert old in text
        NET.write_text(text.replace(old, new, 1))

    return change


def mean_file(name: str) -> Change:
    return edit("scale: 0.00390625", f'scale: 0.00390625 mean_file: "{name}"')


def nothing() -> None:
    """The files as they are."""


def put_record(key: bytes, value: bytes) -> Change:
    def change() -> None:
        with lmdb.open("digits_train_lmdb", lock=False) as data, data.begin(write=True) as transaction:
            transaction.put(key, value)

    return change


def empty_lmdb() -> None:
    shutil.rmtree(DATA.parent)
    lmdb.open("digits_train_lmdb", lock=False).close()


def cut_data() -> None:
    os.truncate(DATA, 108544)


def mean_of_another_size() -> None:
    write_mean("big.binaryproto", np.zeros((1, 32, 32), np.float32))
    mean_file("big.binaryproto")()


def images_of_two_sizes() -> None:
    shutil.rmtree(DATA.parent)
    sizes = [28] * 20 + [32] * 20  # the batch size is 20
    write_images(DATA.parent, [np.zeros((1, size, size), np.uint8) for size in sizes], [0] * 40)


@dataclass(frozen=True)
class Mistake:
    """``change`` what stands in the current folder and train with ``flags``; get ``status`` and ``message``."""

    change: Change
    message: str
    status: int = 2
    flags: tuple[str, ...] = ()
    column: int = 0

    @staticmethod
    def set(text: str, message: str) -> Mistake:
        """``message`` begins with the line and the column in ``text``, which are marked below it."""
        _, column, said = message.split(":", 2)
        return Mistake(nothing, said.strip(), flags=(f"--set={text}",), column=int(column))

    @staticmethod
    def give(flag: str, message: str) -> Mistake:
        return Mistake(nothing, message, flags=(flag,))


DIGITS = 'lenet_train_test.prototxt:2:138: layer "digits": digits_train_lmdb: '
NO_GPU = "this machine has no usable CUDA device; add --set 'solver_mode: CPU' to compute on the CPU"
MISTAKES = {
    # The network
    "empty file": Mistake(
        lambda: NET.write_text(""), "lenet_train_test.prototxt:1:1: the net is empty: its text has no layer"
    ),
    "no layer for the state": Mistake(
        lambda: NET.write_text('layer { name: "a" type: "Silence" include { phase: TEST } }'),
        "lenet_train_test.prototxt:1:1: the net has no layer for phase TRAIN and level 2 and stage a, b; "
        'layer "a" has include { phase: TEST }: --phase TEST',
        flags=("--level=2", "--stage=a,b"),
    ),
    "filler": Mistake(
        edit('type: "xavier"', 'type: "xaver"'),
        'lenet_train_test.prototxt:4:1: layer "conv1": unknown filler type "xaver"; did you mean "xavier"?',
    ),
    "parameter too big": Mistake(
        edit("num_output: 48", "num_output: 4000000000"),
        # 4·10⁹ · 256 · 4 bytes
        'layer "ip1": parameter 0 of shape (4000000000, 256) takes 3814.7 GiB, but the device has 16.0 GiB of memory',
        status=1,
    ),
    "batch too big": Mistake(
        edit("batch_size: 20", "batch_size: 200000000"),
        # 2·10⁸ · 784 · 4 bytes
        'layer "digits": top "data" of shape (200000000, 1, 28, 28) takes 584.1 GiB, but the device has 16.0 GiB '
        "of memory",
        status=1,
    ),
    "label out of range": Mistake(
        edit("num_output: 10", "num_output: 5"),
        'layer "loss": label 7 at position 4 of "label" is outside [0, 5), the classes of "ip2"; correct the list or '
        'data set that "label" comes from, or give "ip2" more classes',
        status=1,
    ),
    "shapes that fit no more": Mistake(
        images_of_two_sizes,
        # 32 → 28 → 14 → 10 → 5: 16 · 5 · 5 = 400 inputs instead of 256
        'layer "ip1": mat1 and mat2 shapes cannot be multiplied (20x400 and 256x48) (bottoms of shape (20, 16, 5, 5))',
        status=1,
    ),
    # Data
    "empty LMDB": Mistake(empty_lmdb, DIGITS + "is an LMDB without records"),
    "truncated LMDB": Mistake(
        cut_data, DIGITS + "its data.mdb is truncated: 108544 bytes of 217088; copy or make it again"
    ),
    "no LMDB": Mistake(
        lambda: DATA.write_bytes(b"hello" * 4000), DIGITS + "is not a readable LMDB: File is not an LMDB file"
    ),
    "record that is no Datum": Mistake(
        put_record(b"00000030", b"\x08\x01\x10\x1c\x18"),
        'digits_train_lmdb: record "00000030": not a Datum, or a damaged one',
        status=1,
    ),
    "record that is too short": Mistake(
        put_record(b"00000030", b"\x08\x01\x10\x1c\x18\x1c\x22\x03abc\x28\x01"),
        'digits_train_lmdb: record "00000030": a Datum of channels × height × width = 1×28×28 needs 784 values, has 3',
        status=1,
    ),
    "missing mean file": Mistake(
        mean_file("nope.binaryproto"),
        'lenet_train_test.prototxt:2:87: layer "digits": nope.binaryproto: no such file; '
        'did you mean "mean.binaryproto"?',
    ),
    "mean file of another kind": Mistake(
        mean_file("init.caffemodel"),
        'lenet_train_test.prototxt:2:87: layer "digits": init.caffemodel: is a binary file of weights (caffemodel), '
        "not a binary blob, such as a mean image (binaryproto)",
    ),
    "mean file of another size": Mistake(
        mean_of_another_size,
        'lenet_train_test.prototxt:2:87: layer "digits": the mean image is 1×32×32, the image 1×28×28: '
        'compute "big.binaryproto" from these data (bpt convert mean), or give mean_value instead',
    ),
    # Snapshots and weights
    "snapshot of another net": Mistake(
        edit("num_output: 48", "num_output: 47"),
        "lenet_iter_30.caffemodel: Cannot copy param 0 weights from layer 'ip1'; shape mismatch.  Source param shape "
        "is 48 256 (12288); target param shape is 47 256 (12032). To learn this layer's parameters from scratch "
        "rather than copying from a saved net, rename the layer.",
        flags=("--snapshot=lenet_iter_30.solverstate",),
    ),
    "snapshot of another solver": Mistake(
        nothing,
        "lenet_iter_30.solverstate: Incorrect length of history blobs: 8 in the file, but Adam on this net has 16; "
        "it was written with another solver type or for another net",
        flags=("--snapshot=lenet_iter_30.solverstate", '--set=type: "Adam"'),
    ),
    "weights as snapshot": Mistake.give(
        "--snapshot=lenet_iter_30.caffemodel",
        "lenet_iter_30.caffemodel: is a file of weights, not a solver state; give the .solverstate file, or use "
        "--weights",
    ),
    "HDF5 weights as snapshot": Mistake.give(
        "--snapshot=lenet_opts_iter_30.caffemodel.h5",
        "lenet_opts_iter_30.caffemodel.h5: is a file of weights, not a solver state; give the .solverstate.h5 file, "
        "or use --weights",
    ),
    "text as snapshot": Mistake.give(
        "--snapshot=solver.prototxt",
        "solver.prototxt: is a text file (prototxt), not a binary solver state (solverstate)",
    ),
    "state as weights": Mistake.give(
        "--weights=lenet_iter_30.solverstate",
        "lenet_iter_30.solverstate: is a solver state, not weights; these are in the .caffemodel file of the same name",
    ),
    "HDF5 state as weights": Mistake.give(
        "--weights=lenet_opts_iter_30.solverstate.h5",
        "lenet_opts_iter_30.solverstate.h5: is a solver state, not weights; these are in the .caffemodel.h5 file of "
        "the same name",
    ),
    "text as weights": Mistake.give(
        "--weights=solver.prototxt",
        "solver.prototxt: is a text file (prototxt), not a binary file of weights (caffemodel); bpt reads .caffemodel "
        "and HDF5 files of weights; bpt convert makes one of other formats",
    ),
    "network as solver": Mistake.give(
        "--solver=lenet_train_test.prototxt",
        "lenet_train_test.prototxt: is the text of a network, not a solver; give the solver that names it (net: …); "
        "bpt test, time and classify take a network by --model",
    ),
    "folder as weights": Mistake.give("--weights=digits_train_lmdb", "digits_train_lmdb: is a folder, not a file"),
    "second of several weights": Mistake.give(
        "--weights=init.caffemodel,nope.caffemodel", 'nope.caffemodel: no such file; did you mean "init.caffemodel"?'
    ),
    "no file": Mistake.give("--weights=,", '--weights "," names no file'),
    "snapshot folder that is a file": Mistake(
        lambda: Path("file").touch(),
        'cannot write to snapshot_prefix "file/x": "file" is not a folder',
        flags=('--set=snapshot: 1 snapshot_prefix: "file/x"',),
        column=13,
    ),
    # The wrong file
    "binary file as solver": Mistake.give(
        "--solver=init.caffemodel", "init.caffemodel: is a binary file of weights (caffemodel), not a prototxt"
    ),
    "folder as solver": Mistake.give("--solver=.", ".: is a folder, not a file"),
    # --set
    "set: unfinished": Mistake.set("max_iter", '1:9: expected ":" after "max_iter", found: the end'),
    "set: not a number": Mistake.set("max_iter: many", '1:11: "max_iter" takes a whole number, found: many'),
    "set: not in quotes": Mistake.set("type: SGD", '1:7: "type" takes text in quotes, found: SGD'),
    "set: unknown field": Mistake.set(
        "maxiter: 3", '1:1: SolverParameter has no field "maxiter"; did you mean "max_iter"?'
    ),
    "set: unknown value": Mistake.set(
        "solver_mode: TPU", '1:14: "solver_mode" takes one of CPU, GPU, found: TPU; did you mean "GPU"?'
    ),
    "set: below its least": Mistake.set("max_iter: -1", "1:1: max_iter is -1; it must be at least 0"),
    "set: not finite": Mistake.set("base_lr: nan", "1:1: base_lr is nan; it must be finite"),
    "set: two nets": Mistake.set(
        'train_net: "a"',
        "1:1: name the net to train by one of net, net_param, train_net, train_net_param: net and train_net are set",
    ),
    "set: nameless net": Mistake(
        nothing,
        "solver.prototxt:1:1: name the net to train by one of net, net_param, train_net, train_net_param: none of them "
        "is set",
        flags=('--set=net: ""',),
    ),
    "set: test_iter of no test": Mistake.set(
        "test_iter: 0 test_initialization: true", "1:1: test_iter is 0; it must be at least 1"
    ),
    "set: no test_interval": Mistake(
        nothing,
        "solver.prototxt:2:1: test_iter asks for tests, but test_interval is 0; set it to the iterations between tests",
        flags=("--set=test_interval: 0",),
    ),
    # Devices and ranks
    "GPU without a GPU": Mistake.give("--set=solver_mode: GPU", f"solver_mode: GPU: {NO_GPU}"),
    "pipeline": Mistake.set(
        "parallel_param { num_stages: 2 }",
        "1:1: parallel_param: 1 rank cannot be divided into num_stages 2 × num_shards 1 = 2 ranks a replica: 1 / 2 is "
        "not whole; start a multiple of 2 ranks (mpirun -n 2), or change num_stages",
    ),
    "more stages than layers": Mistake.set(
        "parallel_param { num_stages: 100 }",
        "1:18: pipeline_param: the net can be cut into 8 stages at most, because data layers stay with the first layer "
        'that computes ("digits", "conv1"), but there are to be 100; set num_stages: 8 or less',
    ),
    "shards": Mistake.set(
        "parallel_param { num_shards: 3 }",
        "1:1: parallel_param: 1 rank cannot be divided into "
        "num_stages 1 × num_shards 3 = 3 ranks a replica: 1 / 3 is not whole; start a multiple of 3 ranks "
        "(mpirun -n 3), or change num_shards",
    ),
    "no stages": Mistake.set(
        "parallel_param { num_stages: 0 }", "1:18: parallel_param: num_stages is 0; it must be at least 1"
    ),
    "balance": Mistake.set(
        "parallel_param { balance: IDPA }",
        "1:18: parallel_param: balance: IDPA divides the data set among the workers of exchange: SGWU, AGWU or ASGD; "
        "use one of them, or balance: STATIC or DYNAMIC, which divide each batch",
    ),
    "outer shards": Mistake.set(
        "parallel_param { exchange: AGWU num_shards: 2 }",
        "1:33: parallel_param: exchange: AGWU with num_shards: 2 needs rank 0, which serves, and 2 ranks for each "
        "worker; 1 rank is not 1 + 2 k: start 3 (mpirun -n 3), or change num_shards",
    ),
    "outer static": Mistake.set(
        "parallel_param { exchange: SGWU balance: STATIC }",
        "1:33: parallel_param: balance: STATIC divides the batches of a synchronous exchange; exchange: SGWU divides "
        "the data set: use balance: IDPA or UNIFORM",
    ),
    "outer epochs": Mistake.set(
        "parallel_param { exchange: AGWU agwu_param { local_epochs: 0 } }",
        "1:46: agwu_param: local_epochs is 0; it must be at least 1",
    ),
    "outer fetch": Mistake.set(
        "parallel_param { exchange: ASGD agwu_param { fetch: 2 max_staleness: 4 } }",
        "1:46: agwu_param: fetch: 2 lets a worker fall behind on purpose, and max_staleness forbids it; leave one "
        "of them out",
    ),
    "task DAG": Mistake.set(
        "parallel_param { num_shards: 2 inner_param { engine: TASK_DAG } }",
        "1:1: parallel_param: 1 rank cannot be divided into num_stages 1 × num_shards 2 = 2 ranks a replica: "
        "1 / 2 is not whole; start a multiple of 2 ranks (mpirun -n 2), or change num_shards",
    ),
    "threads": Mistake.set(
        "parallel_param { inner_param { num_threads: -1 } }",
        "1:32: inner_param: num_threads is -1; it must be at least 0 (0: the node's cores divided by its ranks)",
    ),
    "no profile": Mistake.set(
        "parallel_param { balance: STATIC }",
        "1:18: parallel_param: balance: STATIC needs "
        'balance_param { profile: … }, a file that "mpirun … bpt time --solver S --profile FILE" writes',
    ),
    "chunk_size": Mistake.set(
        "parallel_param { exchange: CGDP cgdp_param { chunk_size: -1 } }",
        "1:46: cgdp_param: chunk_size is -1; it must be at least 0",
    ),
    "interval": Mistake.set(
        "parallel_param { exchange: CGDP cgdp_param { interval: 0 } }",
        "1:46: cgdp_param: interval is 0; it must be at least 1",
    ),
    "chunks twice": Mistake.set(
        "parallel_param { exchange: CGDP cgdp_param { chunk_size: 2 chunking: MODEL } }",
        "1:46: cgdp_param: chunk_size: 2 makes chunks of one size, but chunking: MODEL chooses them by itself; "
        "leave one of them out",
    ),
    "unknown exchange": Mistake.set(
        "parallel_param { exchange: GOSSIP }",
        '1:28: "exchange" takes one of ALLREDUCE, TREE, CGDP, SGWU, AGWU, ASGD, RING, LOCAL, found: GOSSIP',
    ),
}


@pytest.mark.parametrize("flag", ["--weights=solver.prototxt", "--snapshot=lenet_iter_30.caffemodel"])
@pytest.mark.usefixtures("inputs")
def test_a_wrong_file_to_start_from_is_refused_before_the_solver_is_shown(flag: str, bpt: Bpt) -> None:
    outcome = bpt(*TRAIN, flag)
    assert outcome.status == 2 and "Initializing solver" not in outcome.err


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("inputs")
def test_a_mistake_is_answered_in_one_line(name: str, bpt: Bpt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(making, "obtainable_memory", lambda device: 2**34)
    mistake = MISTAKES[name]
    mistake.change()
    outcome = bpt(*TRAIN, *mistake.flags)
    assert outcome.error == mistake.message
    assert outcome.status == mistake.status
    if mistake.column:
        assert "Initializing solver" not in outcome.err  # a long text above the mark would hide what is wrong
        text = mistake.flags[0].removeprefix("--set=")
        assert outcome.err.endswith(f"\n  --set '{text}'\n{' ' * (8 + mistake.column)}^\n")
    assert outcome.out == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
@pytest.mark.usefixtures("inputs")
def test_what_may_not_be_read_or_written(bpt: Bpt) -> None:
    NET.chmod(0)
    assert bpt(*TRAIN).error == f"{NET}: cannot be read: Permission denied"
    NET.chmod(0o644)
    Path("locked").mkdir(mode=0o555)
    outcome = bpt(*TRAIN, '--set=snapshot: 1 snapshot_prefix: "locked/x"')
    assert outcome.error.endswith('cannot write to snapshot_prefix "locked/x": the folder "locked" is not writable')
    assert outcome.status == 2


@pytest.mark.parametrize(("form", "suffix"), [("BINARYPROTO", ""), ("HDF5", ".h5")])
def test_a_full_disk_leaves_the_old_snapshot_intact(form: str, suffix: str, bpt: Bpt, inputs: Path) -> None:
    settings = f"--set=max_iter: 31 snapshot: 30 snapshot_format: {form} test_initialization: false"
    assert bpt("train", "--solver=solver.prototxt", settings).status == 0
    names = [f"lenet_iter_30.{kind}{suffix}" for kind in ("caffemodel", "solverstate")]
    before = {path.name: path.read_bytes() for path in inputs.iterdir() if path.is_file()}
    assert set(names) <= set(before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # bytes a file; the weights take 65,000
    try:
        outcome = bpt("train", "--solver=solver.prototxt", settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert outcome.error == f"{names[0]}: could not be written: File too large"
    assert outcome.status == 1
    assert {path.name: path.read_bytes() for path in inputs.iterdir() if path.is_file()} == before


@pytest.mark.usefixtures("inputs")
def test_a_loss_that_is_not_finite_is_told_once_and_training_goes_on(bpt: Bpt) -> None:
    outcome = bpt(*TRAIN, "--set=base_lr: 1e30 max_iter: 8 display: 1 on_nan: GO_ON")
    assert outcome.status == 0
    [warning] = [line for line in outcome.err.splitlines() if line.startswith("W")]
    assert "is not finite; training continues" in warning
    assert "] Iteration 7 (" in outcome.err


@pytest.mark.usefixtures("inputs")
def test_later_weights_lie_over_earlier_ones(bpt: Bpt) -> None:
    score = ("test", f"--model={NET}", "--iterations=1")
    both = bpt(*score, "--weights=init.caffemodel,lenet_iter_60.caffemodel").err
    last = bpt(*score, "--weights=lenet_iter_60.caffemodel").err
    assert both.splitlines()[-1].partition("] ")[2] == last.splitlines()[-1].partition("] ")[2]
    outcome = bpt(*TRAIN, "--weights=init.caffemodel,lenet_iter_60.caffemodel")
    assert outcome.status == 0
    assert [line.partition("] ")[2] for line in outcome.err.splitlines() if "Finetuning" in line] == [
        "Finetuning from init.caffemodel",
        "Finetuning from lenet_iter_60.caffemodel",
    ]


@pytest.mark.usefixtures("inputs")
def test_no_memory_in_the_thread_that_reads_ahead(bpt: Bpt, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*shape: int) -> torch.Tensor:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate …\nmore")

    monkeypatch.setattr(batches, "empty", refuse)
    outcome = bpt(*TRAIN)
    assert outcome.error == 'layer "digits": out of memory; a smaller batch_size needs less'
    assert outcome.status == 1
