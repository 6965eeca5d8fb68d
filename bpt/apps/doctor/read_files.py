"""Check that all ranks read the same data sets and files, and that snapshots can be written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bpt.apps.doctor.content import (
    Content,
    ReadContent,
    file_content,
    hdf5_content,
    image_content,
    lmdb_content,
    mean_content,
    volume_content,
)
from bpt.apps.doctor.findings import (
    Finding,
    Ranks,
    Section,
    attempt,
    grouped,
    nets_with_data,
    note,
    ok,
    problem,
    reads_all,
    spans,
    warning,
)
from bpt.apps.doctor.texts import errors_of
from bpt.config.plan.nets import NetPlan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import resolve_path
from bpt.graph.layer_spec import FileKind, LayerSpec
from bpt.graph.layer_specs import layer_specs
from bpt.graph.state import filter_layers
from bpt.nn.layers import LAYERS
from bpt.train.state import read_state, weight_files
from bpt.train.state.resuming import learned_net


@dataclass(frozen=True)
class CheckedInput:
    """A file or data set that a run reads: its name in findings, and the function that reads its content."""

    name: str
    read: ReadContent


def inputs_of(plans: Mapping[str, NetPlan], plan: RunPlan, resume: str = "", rank: int = 0) -> list[CheckedInput]:
    """Return the inputs that a rank reads in a run in addition to texts, each once.

    Args:
        plans: the plans of its nets by name.
        plan: the plan of the run.
        resume: the solver state from which the run resumes; empty: none.
        rank: the rank.

    Raises:
        LayerError: the rules of a layer contradict each other.
    """
    found: list[CheckedInput] = []
    for each in nets_with_data(plans, plan, rank).values():
        net = each.source
        for spec in filter_layers(layer_specs(net.param, net.origins), each.state):
            found += _of_layer(spec)
    all_files = reads_all(plan, rank)
    weights = weight_files(plan.weights, plan.path) if all_files else []
    found += [CheckedInput(f"weights {path}", partial(file_content, path)) for path in weights]
    balance = plan.parallel_param.balance_param
    if balance.profile and plan.parallel_param.balance == pb.ParallelParameter.STATIC:
        path = resolve_path(balance.profile, plan.path)
        found.append(CheckedInput(f"profile {path}", partial(file_content, path)))
    if resume and all_files:
        found.append(CheckedInput(f"snapshot {resume}", partial(_snapshot_content, resume)))
    return list({one.name: one for one in found}.values())


_READERS: Mapping[FileKind, Callable[..., Content]] = {
    FileKind.LMDB: lmdb_content,
    FileKind.HDF5_LIST: hdf5_content,
    FileKind.VOLUME_LIST: volume_content,
    FileKind.IMAGE_LIST: image_content,
    FileKind.MEAN: mean_content,
}
"""The functions that read the content of files with a known format."""


def _of_layer(spec: LayerSpec) -> Iterator[CheckedInput]:
    for place, kind in LAYERS[spec.type].files if spec.type in LAYERS else ():
        field, name = place.split(".")
        message = getattr(spec.param, field)
        path = getattr(message, name)
        if not path or kind is FileKind.FOLDER:
            continue
        more: tuple[object, ...] = (message.root_folder,) if kind in (FileKind.VOLUME_LIST, FileKind.IMAGE_LIST) else ()
        title = f"{kind.value} {path}"
        if kind is FileKind.HDF5_LIST:
            more, title = (spec.tops, message.allow_external), f"{title} ({', '.join(spec.tops)})"
        yield CheckedInput(title, partial(_READERS.get(kind, file_content), path, *more))


def _snapshot_content(path: str) -> Content:
    """Return the content of a solver state and of the weights that it names."""
    model = learned_net(read_state(path), path)
    state, weights = file_content(path), file_content(model)
    digest = hashlib.blake2b(f"{state.digest} {weights.digest}".encode(), digest_size=8).hexdigest()
    return Content(f"{state.amount}, with {model} of {weights.amount}", digest)


_SHARE = "copy it to these hosts, or put it in a folder that all hosts share"
_CHECK_PATH = "check the path, and the folder in which the command is started"

Seen = tuple[Content | None, str]  # the content, or the error


def read_inputs(inputs: Sequence[CheckedInput]) -> dict[str, Seen]:
    """Return the content of each input on this rank, or the error, by the input's name; raises nothing."""
    read = {one.name: attempt(one.read) for one in inputs}
    return {name: (content.value, content.message) for name, content in read.items()}


def check_inputs(ranks: Ranks, seen: dict[str, Seen]) -> Section:
    """Compare the inputs of all ranks; a collective call."""
    everybody = ranks.world.allgather(seen)
    names = dict.fromkeys(name for theirs in everybody for name in theirs)
    findings = [finding for name in names for finding in _compared(ranks, name, [t.get(name) for t in everybody])]
    return Section("Data and files", tuple(findings or [ok("the nets read no files")]))


def _compared(ranks: Ranks, name: str, seen: Sequence[Seen | None]) -> Iterator[Finding]:
    """Yield the findings about one input; ``None`` in ``seen``: a rank does not read it."""
    errors = [read[1] if read else "" for read in seen]
    fails_everywhere = all(read[1] for read in seen if read)
    yield from errors_of(ranks, errors, _CHECK_PATH if fails_everywhere else _SHARE)
    contents = {rank: read[0] for rank, read in enumerate(seen) if read and read[0] is not None}
    groups: dict[Content, list[int]] = {}
    for rank, content in contents.items():
        groups.setdefault(content, []).append(rank)
    if not groups:
        return
    (first, those), *others = groups.items()
    for content, members in others:
        amounts = f"{content.amount}, not {first.amount}" if content.amount != first.amount else f"{first.amount} too"
        yield problem(
            f"{ranks.named(members)}: {name} has another content than on {ranks.named(those)}: {amounts}", _SHARE
        )
    if len(groups) == 1 and not any(errors):
        yield ok(f"{name}: {first.amount}{_readers(ranks, list(contents))}")


def _readers(ranks: Ranks, readers: list[int]) -> str:
    """Return which ranks read the same content."""
    if len(readers) < ranks.world.size:
        return f", read by rank{'s' * (len(readers) > 1)} {spans(readers)} only"
    return ", the same on all ranks" * (len(readers) > 1)


def check_snapshots(ranks: Ranks, plan: RunPlan, nbytes: int | None) -> Section:
    """Check that rank 0 can write snapshots and that the others see them; a collective call.

    Args:
        ranks: all ranks.
        plan: the plan of the run.
        nbytes: the bytes of a snapshot; ``None``: unknown.
    """
    return Section("Snapshots", tuple(_snapshots(ranks, plan, nbytes)))


def _snapshots(ranks: Ranks, plan: RunPlan, nbytes: int | None) -> Iterator[Finding]:
    if not plan.snapshot and not plan.snapshot_after_train:
        yield note("the solver asks for no snapshots: what is learned is lost at the end", "snapshot_after_train: true")
        return
    world, prefix = ranks.world, plan.snapshot_prefix
    folder = _first_folder(prefix)
    token = world.bcast(os.path.join(folder, f".bpt-doctor.{secrets.token_hex(6)}.tmp"))
    trial = attempt(lambda: _touch(token)) if world.rank == 0 else None
    error = world.bcast(trial.message if trial else "")
    seen = world.allgather(os.path.exists(token))
    if world.rank == 0:
        with contextlib.suppress(OSError):
            os.unlink(token)
    if error:
        yield problem(
            f'{ranks.named([0])}, which writes snapshots, cannot write under snapshot_prefix "{prefix}": {error}',
            "let the user write there, or set another snapshot_prefix",
        )
        return
    free = world.bcast(shutil.disk_usage(folder).free if world.rank == 0 else 0)
    place = os.path.abspath(folder)
    if nbytes is not None and free < nbytes:
        yield problem(
            f"a snapshot takes {nbytes / 1e6:.0f} MB, but there is room for {free / 1e6:.0f} MB at {place}",
            "make room, or set another snapshot_prefix",
        )
    elif nbytes is not None and plan.snapshot and free < 3 * nbytes:
        yield warning(
            f"there is room for {free // nbytes} snapshots of {nbytes / 1e6:.0f} MB at {place}",
            "make room, or set another snapshot_prefix",
        )
    else:
        size = f"; one takes {nbytes / 1e6:.3g} MB, there is room for {free / 1e9:.3g} GB" if nbytes else ""
        yield ok(f'rank 0 can write snapshots under "{prefix}"{size}')
    blind = grouped(seen).get(False, [])
    if blind and not plan.is_outer:
        yield note(
            f"{ranks.named(blind)}: files that rank 0 writes under {place} are not visible there; to resume, "
            "all ranks read the snapshot",
            "set snapshot_prefix in a folder that all hosts share, or copy the snapshot to all hosts before --snapshot",
        )


def _first_folder(prefix: str) -> str:
    """Return the folder of ``prefix``, or the first existing one above it; training makes the others."""
    folder = os.path.dirname(prefix) or "."
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or "."
    return folder


def _touch(path: str) -> None:
    with open(path, "xb"):
        pass
