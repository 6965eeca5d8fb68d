"""Verify every checksum, record and picture of data sets once (``--data``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bpt.apps.doctor.findings import Finding, Ranks, Section, attempt, nets_with_data, note, ok, problem
from bpt.base.errors import BptError, FileError
from bpt.base.progress import ProgressBar
from bpt.config.plan.nets import NetPlan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.binary_files import sniff
from bpt.config.proto.sources import read_net
from bpt.data.hdf5_file import listed
from bpt.data.listed_pictures import (
    ENDINGS,
    ListedFile,
    ListedPicture,
    is_window_file,
    listed_pictures,
    lists_pictures,
    pictures_in,
    verify_listed,
    window_file_pictures,
)
from bpt.data.listed_scans import ListedClip, listed_volumes, lists_clips, lists_volumes
from bpt.data.source import first_line
from bpt.data.verify import Verified, size_of, verify_hdf5, verify_lmdb
from bpt.graph.layer_spec import FileKind, LayerSpec
from bpt.graph.layer_specs import layer_specs
from bpt.graph.state import filter_layers
from bpt.nn.layers import LAYERS
from bpt.nn.layers.video_data import VideoData
from bpt.system.comm.base import Communicator

_MIB = 2**20
_AGAIN = "copy it again from an undamaged source, or make it again"
_HDF5_ENDINGS = (".h5", ".hdf5", ".hdf")
_NO_CHECKSUMS = "data that bpt writes have them: bpt convert imageset"


@dataclass(frozen=True)
class Stored:
    """An LMDB, an HDF5 file, pictures, volumes or clips, with the function that verifies them.

    Attributes:
        kind: the kind in words.
        path: the path as the user or a text wrote it.
        verify: reads all data, and reports the bytes that it has read.
        size: returns the total of these bytes.
        root: the text before the names of a list.
    """

    kind: str
    path: str
    verify: Callable[..., Verified]
    size: Callable[[], int]
    root: str = ""


def stored_of_plan(plans: Mapping[str, NetPlan], plan: RunPlan, rank: int) -> list[Stored]:
    """Return the data that a rank reads in a run.

    Raises:
        BptError: a list of files cannot be read.
    """
    found: list[Stored] = []
    for each in nets_with_data(plans, plan, rank).values():
        net = each.source
        for spec in filter_layers(layer_specs(net.param, net.origins), each.state):
            found += _of_layer(spec)
    return found


def stored_at(path: str) -> list[Stored]:
    """Return the data at ``path``: a data set, files of a list or folder, or the data of a network's text.

    Raises:
        BptError: there are no such data.
    """
    if os.path.isdir(path):
        is_lmdb = os.path.exists(os.path.join(path, "data.mdb")) or not pictures_in(path)
        return [_lmdb(path)] if is_lmdb else [_pictures("folder of images", path, partial(pictures_in, path))]
    if os.path.splitext(path)[1].lower() in ENDINGS and os.path.exists(path):
        return [_pictures("image", path, lambda: [ListedPicture("", path)])]
    try:
        kind = sniff(path)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror or error}") from None
    if kind == "hdf5":
        return [_hdf5(path)]
    if kind == "prototxt":
        net = read_net(path)
        return [one for spec in layer_specs(net.param, net.origins) for one in _of_layer(spec)]
    return _of_list(path)


def _of_list(path: str) -> list[Stored]:
    """Return the windows, pictures, volumes or HDF5 files that a text lists."""
    if is_window_file(path):
        return [_pictures(FileKind.WINDOW_FILE.value, path, partial(window_file_pictures, path))]
    if lists_pictures(path):
        return [_pictures(FileKind.IMAGE_LIST.value, path, partial(listed_pictures, path))]
    if lists_volumes(path):
        return [_pictures(FileKind.VOLUME_LIST.value, path, partial(listed_volumes, path), what="volume")]
    try:
        return [_hdf5(str(file)) for file in listed(path)]
    except FileError as error:
        if any(word.lower().endswith(_HDF5_ENDINGS) for word in first_line(path).split()):
            raise
        if lists_clips(path):
            raise FileError(
                path, "seems to list clips; give the network's text, which says how they are read"
            ) from None
        raise FileError(
            path,
            "is no data set, no network, and no list of pictures, volumes or HDF5 files: "
            f"{str(error).removeprefix(f'{path}: ')}",
        ) from None


def _of_layer(spec: LayerSpec) -> Iterator[Stored]:
    for place, kind in LAYERS[spec.type].files if spec.type in LAYERS else ():
        field, name = place.split(".")
        path = getattr(getattr(spec.param, field), name)
        if path and kind is FileKind.LMDB:
            yield _lmdb(path)
        elif path and kind is FileKind.HDF5_LIST:
            yield from (_hdf5(str(file)) for file in listed(path))
        elif path and kind in _PICTURES:
            root = getattr(getattr(spec.param, field), "root_folder", "")
            yield _pictures(kind.value, path, partial(_PICTURES[kind], path, root), root)
        elif path and kind is FileKind.VOLUME_LIST:
            root = spec.param.volume_data_param.root_folder
            yield _pictures(kind.value, path, partial(listed_volumes, path, root), root, "volume")
        elif path and kind is FileKind.CLIP_LIST:
            root = spec.param.video_data_param.root_folder
            yield _pictures(kind.value, path, partial(_clips_of, spec), root, "clip")


_PICTURES = {FileKind.IMAGE_LIST: listed_pictures, FileKind.WINDOW_FILE: window_file_pictures}


def _clips_of(spec: LayerSpec) -> Sequence[ListedClip]:
    source = VideoData.open(spec)
    return [ListedClip(source, index) for index in range(len(source))]


def _lmdb(path: str) -> Stored:
    return Stored("LMDB", path, partial(verify_lmdb, path), partial(size_of, path))


def _hdf5(path: str) -> Stored:
    return Stored("HDF5 file", path, partial(verify_hdf5, path), partial(size_of, path))


def _pictures(
    kind: str, path: str, find: Callable[[], Sequence[ListedFile]], root: str = "", what: str = "file"
) -> Stored:
    return Stored(kind, path, partial(verify_listed, path, find, what=what), partial(_size_of_pictures, find), root)


def _size_of_pictures(find: Callable[[], Sequence[ListedFile]]) -> int:
    try:
        return sum(picture.size for picture in find())
    except BptError:  # the verification reports this error
        return 0


Seen = list[tuple[str, Verified]]  # kinds of data sets, and the results of their verification


def verify(world: Communicator, stored: Sequence[Stored]) -> Seen:
    """Verify each of ``stored`` once, and return the results; only the first rank of each host does this."""
    hosts = world.allgather(world.host)
    if hosts.index(world.host) < world.rank:
        return []
    unique = list({(one.kind, os.path.realpath(one.path), one.root): one for one in stored}.values())
    seen: Seen = []
    total = sum(one.size() for one in unique)
    with ProgressBar(-(-total // _MIB), label="Verifying, MiB", shown=world.rank == 0) as progress:
        done = 0

        def advance(size: int) -> None:
            nonlocal done
            done += size
            progress.to(done // _MIB)

        for one in unique:
            seen.append((one.kind, one.verify(advance)))
    return seen


def check_stored_data(ranks: Ranks, find: Callable[[], list[Stored]]) -> Section:
    """Verify the data that ``find`` returns, once on each host; a collective call that may read all data."""
    found = attempt(find)
    seen = ranks.world.allgather((found.message, verify(ranks.world, found.value or [])))
    findings: list[Finding] = []
    for rank, (message, theirs) in enumerate(seen):
        where = f"{ranks.named([rank])}: " if ranks.world.size > 1 else ""
        if message and message not in [before for before, _ in seen[:rank]]:
            findings.append(problem(f"{where}{message}"))
        findings += [finding for kind, verified in theirs for finding in _findings(where, kind, verified)]
    nothing = note("no LMDB, no HDF5 file and no list of images, volumes or clips is read")
    return Section("Checksums of data", tuple(findings or [nothing]))


_LISTS = FileKind.IMAGE_LIST, FileKind.WINDOW_FILE, FileKind.VOLUME_LIST, FileKind.CLIP_LIST
_OF_PICTURES = frozenset((*(kind.value for kind in _LISTS), "folder of images", "image"))


def _findings(where: str, kind: str, seen: Verified) -> Iterator[Finding]:
    """Yield the findings about one data set; each damaged picture has a finding of its own."""
    if kind not in _OF_PICTURES:
        yield _finding(where, kind, seen)
    elif seen.damage:
        yield from (problem(f"{where}{damage}") for damage in seen.damage[:-1])
        damaged = len(seen.damage)
        remedy = f"{damaged} of {seen.amount} in the {kind} {seen.path}: repair or remove them"
        yield problem(f"{where}{seen.damage[-1]}", remedy if seen.amount else "")
    else:
        yield ok(f"{where}{kind} {seen.path}: {seen.amount}, all can be decoded")


def _finding(where: str, kind: str, seen: Verified) -> Finding:
    name = f"{where}{kind} {seen.path}"
    if seen.damage:
        return problem(f"{name} is damaged: {'; '.join(seen.damage)}", _AGAIN)
    if not seen.has_checksums:
        return note(f"{name}: {seen.amount}, all can be read; it has no checksums to compare them with", _NO_CHECKSUMS)
    return ok(f"{name}: {seen.amount}, all as they were written")
