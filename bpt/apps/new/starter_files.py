"""Write the files of ``bpt new``: lists, class names, network, solver, deploy text, and a README with next commands."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bpt.apps.new.labelled_folder import LabelledPicture, decode, find_pictures, write_smaller
from bpt.apps.new.split_pictures import split_pictures, test_batches
from bpt.apps.new.starter_net import SIZES, StarterNet, check_size
from bpt.apps.pictures.class_names import NAMES_FILE
from bpt.apps.pictures.deploy_text import deploy_text
from bpt.base.atomic import write_text
from bpt.base.errors import FileError, WriteError
from bpt.base.progress import ProgressBar
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.layout import layout, readable
from bpt.config.proto.text import to_text

NET, SOLVER, DEPLOY, README = "train_val.prototxt", "solver.prototxt", "deploy.prototxt", "README.md"
LEFT_OUT = "left_out.txt"
_BATCH = 32
_EPOCHS = 30  # fewest epochs of a run
_ITERATIONS = 300  # fewest iterations of a run
_TESTS = 10  # tests of a run
_DISPLAYS = 30  # displayed iterations of a run
_LARGE = 2**18  # mean pixels of a picture above which smaller copies save time in each epoch
_SHOWN = 20  # largest number of left-out files that the terminal lists


@dataclass(frozen=True)
class NewRequest:
    """The settings of ``bpt new``.

    Attributes:
        pictures: the folder with a sub-folder for each class.
        output: the folder to write; "": the name of ``pictures`` with ``_net``, in the current folder.
        net: a key of SIZES.
        size: the side of the network's input, in pixels; 0: the network's default.
        seed: the random seed of the division of the pictures and of the run.
    """

    pictures: str
    output: str = ""
    net: str = "small"
    size: int = 0
    seed: int = 1


def make_starter(request: NewRequest) -> Iterator[str]:
    """Write the files, and yield the lines of ``bpt new``.

    Raises:
        UsageError: the network cannot take pictures of this size.
        FileError: the pictures cannot be used, or a file exists already.
        WriteError: a file could not be written.
    """
    size = request.size or SIZES[request.net]
    check_size(request.net, size)
    folder = Path(request.output or f"{Path(os.path.abspath(request.pictures)).name}_net")
    names = (NET, SOLVER, DEPLOY, README, NAMES_FILE, "train.txt", "test.txt")
    for name in names:
        if (folder / name).exists():
            raise FileError(folder / name, "exists already; remove it, or name another folder with --output")
    classes, found, left_out = find_pictures(request.pictures)
    with ProgressBar(len(found), label="pictures") as bar:
        decoded = decode(found, bar.advance)
    classes, whole = _without_empty(classes, decoded.whole, request.pictures, left_out)
    left_out += decoded.left_out
    train, test = split_pictures(whole, request.seed)
    if not train or not test:
        lacking = "train" if not train else "test"
        raise FileError(request.pictures, f"no picture is left to {lacking} with; put at least two into each class")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(folder, error.strerror) from None
    batch, times = test_batches(len(test))
    net = StarterNet(
        request.net,
        size,
        len(classes),
        decoded.mean if request.net != "googlenet" else (104.0, 117.0, 123.0),
        (str(folder / "train.txt"), str(folder / "test.txt")),
        (min(_BATCH, len(train)), batch),
        len(whole),
    )
    if decoded.pixels > _LARGE:
        train, test = (_smaller(part, request.pictures, folder, net.resized) for part in (train, test))
    for name, part in (("train.txt", train), ("test.txt", test)):
        write_text(folder / name, "".join(f"{picture.path} {picture.label}\n" for picture in part))
    write_text(folder / NAMES_FILE, "".join(f"{name}\n" for name in classes))
    write_text(folder / NET, _NET_HEAD + layout(net.text(folder.name)))
    write_text(folder / DEPLOY, deploy_text(str(folder / NET)))
    iterations = max(_ITERATIONS, -(-_EPOCHS * len(train) // net.batches[0]))
    write_text(folder / SOLVER, _SOLVER_HEAD + readable(to_text(_solver(folder, request, iterations, times))))
    commands = _commands(folder, test[0].path)
    write_text(folder / README, _readme(folder, request, classes, train, test, commands))
    yield from (f"left out: {line}" for line in left_out[:_SHOWN])
    if left_out:
        write_text(folder / LEFT_OUT, "".join(f"{line}\n" for line in left_out))
    if len(left_out) > _SHOWN:
        yield f"left out: {len(left_out) - _SHOWN} more; {folder / LEFT_OUT} names all"
    yield f"{len(classes)} classes: {len(train)} pictures to train with, {len(test)} to test with"
    yield from (str(folder / name) for name in names)
    yield "Next:"
    yield from (f"  {command}" for command in commands)


def _without_empty(
    classes: Sequence[str], whole: Sequence[LabelledPicture], folder: str, left_out: list[str]
) -> tuple[list[str], list[LabelledPicture]]:
    """Return the classes that have a picture that can be decoded, and the pictures with the numbers of these classes.

    The function appends a line to ``left_out`` for each other class.
    """
    counts = Counter(picture.label for picture in whole)
    kept = [label for label in range(len(classes)) if counts[label]]
    left_out += [
        f"{folder}: no picture of class {name!r} can be decoded"
        for label, name in enumerate(classes)
        if label not in kept
    ]
    if len(kept) < 2:
        raise FileError(folder, f"pictures of {len(kept)} classes can be decoded; at least 2 are needed")
    numbers = {label: number for number, label in enumerate(kept)}
    renumbered = [LabelledPicture(each.path, numbers[each.label], each.is_test) for each in whole]
    return [classes[label] for label in kept], renumbered


def _smaller(pictures: Sequence[LabelledPicture], root: str, folder: Path, side: int) -> list[LabelledPicture]:
    """Write copies in the size to which training resizes pictures, and return them."""
    targets = [str(folder / "pictures" / f"{os.path.relpath(each.path, root)}.png") for each in pictures]
    write_smaller(pictures, targets, side)
    return [LabelledPicture(path, each.label, each.is_test) for path, each in zip(targets, pictures, strict=True)]


def _solver(folder: Path, request: NewRequest, iterations: int, test_iter: int) -> pb.SolverParameter:
    interval = max(1, iterations // _TESTS)
    return pb.SolverParameter(
        net=str(folder / NET),
        test_iter=[test_iter],
        test_interval=interval,
        base_lr=0.01 if request.net == "googlenet" else 0.05,
        lr_policy="poly",
        power=1,
        momentum=0.9,
        weight_decay=0.0005,
        max_iter=iterations,
        display=max(1, iterations // _DISPLAYS),
        average_loss=max(1, iterations // _DISPLAYS),
        random_seed=request.seed,
        snapshot_prefix=str(folder / "snapshots" / "net"),
        snapshot_best="accuracy",
    )


def _commands(folder: Path, picture: str) -> list[str]:
    solver, deploy = (shlex.quote(str(folder / name)) for name in (SOLVER, DEPLOY))
    weights = shlex.quote(str(folder / "snapshots" / "net_best.caffemodel"))
    return [
        f"bpt train --solver {solver}",
        f"bpt classify --model {deploy} --weights {weights} {shlex.quote(picture)}",
    ]


def _readme(
    folder: Path,
    request: NewRequest,
    classes: Sequence[str],
    train: Sequence[LabelledPicture],
    test: Sequence[LabelledPicture],
    commands: Sequence[str],
) -> str:
    counts = [Counter(each.label for each in part) for part in (train, test)]
    rows = "\n".join(
        f"| {number} | {name} | {counts[0][number]} | {counts[1][number]} |" for number, name in enumerate(classes)
    )
    options = f" --size {request.size}" if request.size else ""
    typed = f"bpt new {shlex.quote(request.pictures)} --output {shlex.quote(str(folder))} --net {request.net}{options}"
    return _README.format(folder=folder.name, typed=typed, rows=rows, commands="\n    ".join(commands))


_NET_HEAD = """\
# Written by bpt new. The data layers say how a picture is prepared: it is resized, a window of it is cropped, the mean
# is subtracted, and the numbers are scaled. In training the window is at a random place, and half of the windows are
# mirrored. Remove "mirror: true" if left and right differ in meaning, as in letters.
"""

_SOLVER_HEAD = """\
# Written by bpt new. The learning rate falls from base_lr to 0 at max_iter. Each test takes all pictures of test.txt,
# and the weights of the best test become snapshots/net_best.caffemodel. Paths start where bpt new was run.
"""

_README = """\
# {folder}

Made by

    {typed}

Run the next commands in the same folder as that command:

    {commands}

| number | class | to train | to test |
| --- | --- | --- | --- |
{rows}

- `train.txt` and `test.txt` list pictures with the numbers of their classes. Pictures of one scene, person or video
  belong in one list, so move lines if needed. bpt warns if the test batches no longer fit the list.
- `classes.txt` names the classes; `bpt classify`, `explain`, `test` and `report` find it beside the network's text.
- `train_val.prototxt` is the network, `solver.prototxt` the schedule. You may change both; see `bpt help train`.
- `deploy.prototxt` is the deploy text of the network. If you change `train_val.prototxt`, run `bpt deploy` to derive it
  again.
"""
