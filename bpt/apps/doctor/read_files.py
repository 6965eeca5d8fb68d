"""Which data sets and files a run reads, whether all ranks read the same ones, and where snapshots go."""

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
    Look,
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
    """Something that is read: its name in findings, and what looks into it."""

    name: str
    look: Look


def inputs_of(plans: Mapping[str, NetPlan], plan: RunPlan, resume: str = "", rank: int = 0) -> list[CheckedInput]:
    """Return what a rank reads in a run besides texts, each once.

    Args:
        plans: its nets.
        resume: the solver state that the run goes on from; empty: none.

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


_LOOKS: Mapping[FileKind, Callable[..., Content]] = {
    FileKind.LMDB: lmdb_content,
    FileKind.HDF5_LIST: hdf5_content,
    FileKind.VOLUME_LIST: volume_content,
    FileKind.IMAGE_LIST: image_content,
    FileKind.MEAN: mean_content,
}
"""What looks into files that are more than bytes."""


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
        yield CheckedInput(title, partial(_LOOKS.get(kind, file_content), path, *more))


def _snapshot_content(path: str) -> Content:
    """Return a solver state together with the weights that it names."""
    model = learned_net(read_state(path), path)
    state, weights = file_content(path), file_content(model)
    digest = hashlib.blake2b(f"{state.digest} {weights.digest}".encode(), digest_size=8).hexdigest()
    return Content(f"{state.amount}, with {model} of {weights.amount}", digest)


_SHARE = "copy it to these hosts, or put it in a folder that all hosts share"
_FOUND_NOWHERE = "see the path, and the folder that the command is started in"

Seen = tuple[Content | None, str]  # what is there, or what is wrong


def look_at(inputs: Sequence[CheckedInput]) -> dict[str, Seen]:
    """Return what this rank finds under the name of each input. Raises nothing."""
    looked = {one.name: attempt(one.look) for one in inputs}
    return {name: (look.value, look.message) for name, look in looked.items()}


def check_inputs(ranks: Ranks, seen: dict[str, Seen]) -> Section:
    """Compare what all ranks have found; a collective call."""
    everybody = ranks.world.allgather(seen)
    names = dict.fromkeys(name for theirs in everybody for name in theirs)
    findings = [finding for name in names for finding in _compared(ranks, name, [t.get(name) for t in everybody])]
    return Section("Data and files", tuple(findings or [ok("the nets read no files")]))


def _compared(ranks: Ranks, name: str, seen: Sequence[Seen | None]) -> Iterator[Finding]:
    """Yield what is to be said of one input; ``None``: a rank does not read it."""
    errors = [look[1] if look else "" for look in seen]
    nowhere = all(look[1] for look in seen if look)
    yield from errors_of(ranks, errors, _FOUND_NOWHERE if nowhere else _SHARE)
    contents = {rank: look[0] for rank, look in enumerate(seen) if look and look[0] is not None}
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
    """Return who has found the same."""
    if len(readers) < ranks.world.size:
        return f", read by rank{'s' * (len(readers) > 1)} {spans(readers)} only"
    return ", the same on all ranks" * (len(readers) > 1)


def check_snapshots(ranks: Ranks, plan: RunPlan, nbytes: int | None) -> Section:
    """Return whether rank 0 can write snapshots, and the others see them; a collective call.

    Args:
        nbytes: that a snapshot takes; ``None``: not known.
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
            f"{ranks.named(blind)}: what rank 0 writes under {place} is not seen there; to resume, "
            "all ranks read the snapshot",
            "set snapshot_prefix in a folder that all hosts share, or copy the snapshot to all hosts before --snapshot",
        )


def _first_folder(prefix: str) -> str:
    """Return the folder of ``prefix``, or the first above it that exists: the rest is made when it is needed."""
    folder = os.path.dirname(prefix) or "."
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or "."
    return folder


def _touch(path: str) -> None:
    with open(path, "xb"):
        pass
