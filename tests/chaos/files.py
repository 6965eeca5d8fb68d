"""Files that break: kills while snapshots are written over an older run's, and bits that turn."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bpt.base.errors import FileError
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.datum import encode_datum
from bpt.data.hdf5_file import Hdf5Writer
from bpt.data.lmdb_file import LmdbWriter
from bpt.data.verify import verify_hdf5, verify_lmdb
from bpt.system.comm.base import Communicator
from bpt.train import state as snapshot
from bpt.train.solver.solver import Solver
from bpt.train.state.caffe_binary import read_state, read_weights
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.spread_runs import set_up

Run = tuple[int, str, Callable[[], None]]

RANKS = (1, 3)
OLDER, NEWER = "random_seed: 11 max_iter: 12", "random_seed: 12 max_iter: 9"
ALWAYS = "snapshot: 1 test_interval: 100 test_initialization: false display: 0 iter_size: 1"


def train(text: str, ranks: int = 1) -> None:
    """A run that writes a snapshot every iteration, in the current folder; each rank has a slice of layers."""

    def run(world: Communicator) -> None:
        with Solver(
            read_plan("solver.prototxt", [ALWAYS, text, f"parallel_param {{ num_shards: {ranks} }}"]), world=world
        ) as solver:
            solver.solve()

    run_ranks(ranks, run)


def weights_of(path: str) -> str:
    """What tells these weights from all others: their numbers, and not the file's own digest."""
    content = hashlib.sha256()
    for name, blobs in read_weights(path).items():
        for blob in blobs.values():
            content.update(name.encode() + blob.read(blob.shape).tobytes())
    return content.hexdigest()


def history_of(path: str) -> str:
    """What tells a state's history from all others."""
    content = hashlib.sha256()
    for blob in read_state(path)[1]:
        content.update(blob.read(blob.shape).tobytes())
    return content.hexdigest()


def kills(seed: int, first: int, runs: int) -> Iterator[Run]:
    """Kills of a run that overwrites an older one, each in a process of its own, in the current folder.

    Every other one is of three ranks, which are threads of that process.
    """
    set_up(Path.cwd())
    known: dict[str, tuple[str, int]] = {}
    seconds: dict[int, float] = {}
    for name, text, ranks in (*(("newer", NEWER, ranks) for ranks in RANKS), ("older", OLDER, 1)):
        start = time.monotonic()
        train(text, ranks)
        seconds.setdefault(ranks, time.monotonic() - start)
        for path in Path().glob("small_iter_*.solverstate"):
            iteration = int(path.stem.split("_")[-1])
            known[weights_of(str(path.with_suffix(".caffemodel")))] = name, iteration
            known[history_of(str(path))] = name, iteration
    kept = Path("older")
    kept.mkdir()
    for path in Path().glob("small_iter_*"):
        shutil.move(path, kept)
    for number in range(first, first + (runs or 1000)):
        ranks = RANKS[number % len(RANKS)]
        moment = random.Random(f"{seed} {number}").random() * seconds[ranks]
        yield number, f"{ranks} killed after {moment * 1000:.1f} ms", partial(_kill, kept, moment, known, ranks)


def _kill(kept: Path, moment: float, known: dict[str, tuple[str, int]], ranks: int) -> None:
    for path in Path().glob("*small_iter_*"):
        path.unlink()
    for path in kept.iterdir():
        shutil.copy2(path, ".")
    process = os.fork()
    if not process:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        with snapshot.held_for(read_plan("solver.prototxt", [NEWER])):
            train(NEWER, ranks)
        os._exit(0)
    time.sleep(moment)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    found = snapshot.find_newest("small")
    assert found, "none of the older run's snapshots is left"
    state = pb.SolverState.FromString(Path(found).read_bytes())
    model = str(Path(found).with_suffix(".caffemodel"))
    of_weights, of_history = known.get(weights_of(model)), known.get(history_of(found))
    assert of_weights and of_weights == of_history, f"{found}: weights of {of_weights}, history of {of_history}"
    assert of_weights[1] == state.iter, f"{found}: says iteration {state.iter}, is of {of_weights[1]}"
    with snapshot.held_for(read_plan("solver.prototxt", [NEWER])):
        pass
    left = [path.name for path in Path().iterdir() if ".tmp" in path.name]
    assert not left, f"half-written files are left: {left}"


def data_flips(seed: int, first: int, runs: int) -> Iterator[Run]:
    """Single bits of an LMDB and of an HDF5 file, in the current folder."""
    generator = np.random.default_rng(1)
    with LmdbWriter("db") as database:
        for index in range(200):
            size = (1, 30, 40) if index % 9 else (3, 60, 70)
            database.put(encode_datum(generator.integers(0, 256, size, np.uint8), index % 10))
    rows = Hdf5Writer("rows.h5")
    for _ in range(3):
        rows.append({"data": generator.standard_normal((20, 3, 9)), "label": np.arange(20.0)})
    rows.close()
    for number in range(first, first + (runs or 1000)):
        chance = random.Random(f"{seed} {number}")
        path, verify = chance.choice(((Path("db/data.mdb"), "db"), (Path("rows.h5"), "rows.h5")))
        place, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
        yield number, f"bit {bit} of byte {place} of {path}", partial(_flip_data, path, place, bit, verify)


def _flip_data(path: Path, place: int, bit: int, data: str) -> None:
    good = path.read_bytes()
    bad = bytearray(good)
    bad[place] ^= 1 << bit
    path.write_bytes(bad)
    try:
        found = verify_lmdb(data) if data == "db" else verify_hdf5(data)
    finally:
        path.write_bytes(good)
    assert found.damage, "it was not found"


def flips(seed: int, first: int, runs: int) -> Iterator[Run]:
    """Single bits of weights and states in both formats, in the current folder."""
    set_up(Path.cwd())
    for form in ("BINARYPROTO", "HDF5"):
        train(f"max_iter: 2 snapshot_format: {form}")
    for number in range(first, first + (runs or 1000)):
        chance = random.Random(f"{seed} {number}")
        suffix = chance.choice(("", ".h5"))
        path = Path(f"small_iter_2.{chance.choice(('caffemodel', 'solverstate'))}{suffix}")
        place, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
        name = f"bit {bit} of byte {place} of {path}"
        yield number, name, partial(_flip, path, place, bit, f"small_iter_2.solverstate{suffix}")


def _flip(path: Path, place: int, bit: int, state: str) -> None:
    good = path.read_bytes()
    bad = bytearray(good)
    bad[place] ^= 1 << bit
    path.write_bytes(bad)
    try:
        snapshot.verify(state)
    except FileError:
        return
    finally:
        path.write_bytes(good)
    raise AssertionError("it was not found")
