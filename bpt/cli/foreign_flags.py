"""Hints for words of other training programs, such as ``--epochs`` and ``predict``: what to write for bpt instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bpt.base.errors import BptError

if TYPE_CHECKING:
    from bpt.graph.layer_spec import LayerSpec

COMMAND = "train"
COMMANDS = {
    **dict.fromkeys(("predict", "infer", "inference"), "classify"),
    **dict.fromkeys(("fit", "finetune", "fine_tune"), "train"),
    **dict.fromkeys(("eval", "evaluate", "val", "validate"), "test"),
}
"""Commands of other programs, and those of bpt that do the same."""
_SOLVER = re.compile(r"--?solver")
_PAIR = re.compile(r"([A-Za-z_]\w*)=(.*)")
_TAKES_FLAGS = "bpt train takes flags: --solver FILE, and --set 'KEY: VALUE' for fields of the solver"


@dataclass(frozen=True)
class TrainData:
    """The training data of the network that a command line names.

    Attributes:
        layer: the first data layer of the phase TRAIN.
        field: the layer's field that contains its settings, such as ``data_param``.
        batch: samples of a batch.
        iter_size: batches of an iteration.
        samples: samples of the data set.
    """

    layer: LayerSpec
    field: str
    batch: int
    iter_size: int
    samples: int

    def place(self, setting: str) -> str:
        """Return where the text sets a field of the data layer, as the end of a sentence."""
        origin = self.layer.origin(self.field, setting)
        return f"{setting} of layer {self.layer.name!r}" + (f", {origin}" if origin else "")


def hint_for(unknown: Sequence[str], command: Sequence[str]) -> str:
    """Return what to write instead of the ``unknown`` words, as the end of a message; "" if there is no hint.

    Args:
        unknown: the words that the command does not know.
        command: all words of the command line after ``bpt``.
    """
    pairs = [pair for word in unknown if (pair := _PAIR.fullmatch(word))]
    named = [*_flags(unknown), *((pair[1], pair[2]) for pair in pairs)]
    found = [(flag, hint) for flag, value in named if (hint := _hint(flag, value, command))]
    general = f"; {_TAKES_FLAGS}" if pairs else ""
    if len(found) == 1:
        return f"; {found[0][1]}" if not pairs else f"{general}; {found[0][0]}: {found[0][1]}"
    return general + "".join(f"; {flag}: {hint}" for flag, hint in found)


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each flag with its value; "" if it has none."""
    for index, word in enumerate(words):
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            following = words[index + 1] if index + 1 < len(words) else "-"
            yield flag, value if equals or following.startswith("-") else following


def _name(flag: str) -> str:
    """Return a flag as a key of _SPECIAL, without its value."""
    return flag.partition("=")[0].lstrip("-").lower().replace("-", "_")


def _hint(flag: str, value: str, command: Sequence[str]) -> str:
    from bpt.config.proto import bpt_pb2 as pb
    from bpt.config.proto.words import field_of

    name = _name(flag)
    special = _SPECIAL.get(name)
    if special:
        return special(value, command)
    fields = pb.SolverParameter.DESCRIPTOR.fields_by_name
    here = name if name in fields else field_of(pb.SolverParameter(), name)
    if here in fields:
        return f"write {_set(here, _value(here, value))}"
    field, colon, example = here.partition(": ")
    if colon and field in fields:  # the example begins with a value
        return f"write {_set(field, _value(field, value) if value else example.split()[0])}"
    return f"in the solver it is {here}; --set '…' takes it, too" if here else ""


def _value(field: str, value: str) -> str:
    """Return a value as the solver's text has it."""
    from google.protobuf.descriptor import FieldDescriptor

    from bpt.config.proto import bpt_pb2 as pb

    kind = pb.SolverParameter.DESCRIPTOR.fields_by_name[field].type
    if kind == FieldDescriptor.TYPE_MESSAGE:
        return "{ … }"
    return f'"{value}"' if kind == FieldDescriptor.TYPE_STRING else value or "…"


def _set(field: str, value: object) -> str:
    return f"--set '{field}: {value}'"


def _epochs(value: str, command: Sequence[str]) -> str:
    data = _train_data(command)
    if data and value.isdecimal() and data.samples and data.batch:
        taken = data.batch * data.iter_size
        iterations = -(-int(value) * data.samples // taken)
        counted = f"{value} × {data.samples} samples / {taken} an iteration"
        return f"write {_set('max_iter', iterations)}, which counts iterations: {counted}"
    return f"write {_set('max_iter', '…')}, which counts iterations: epochs × samples of the data set / batch_size"


def _batch_size(value: str, command: Sequence[str]) -> str:
    data = _train_data(command)
    if data is None:
        return (
            "write batch_size in the data layer of the network's text; "
            f"{_set('iter_size', 2)} adds up the gradients of 2 batches"
        )
    wanted = int(value) if value.isdecimal() else 0
    if wanted > data.batch and wanted % data.batch == 0:
        return f"write {_set('iter_size', wanted // data.batch)}, or change {data.place('batch_size')}"
    return f"change {data.place('batch_size')}"


def _data(value: str, command: Sequence[str]) -> str:
    data = _train_data(command)
    where = f"change {data.place('source')}" if data else "write source in the data layer of the network's text"
    return f"{where}; for a folder of pictures, bpt new {shlex.quote(value) if value else 'FOLDER'} writes a network"


def _resume(value: str, command: Sequence[str]) -> str:
    is_state = value.endswith((".solverstate", ".solverstate.h5"))
    return f"write --snapshot {shlex.quote(value) if is_state else 'auto'}"


def _device(value: str, command: Sequence[str]) -> str:
    number = re.fullmatch(r"(?:(?:cuda|gpu)?:?)(\d*)", value.lower())
    if value and number:
        return f"write --gpu {number[1] or 0}"
    cpu = _set("solver_mode", "CPU")
    return f"write {cpu}" if value.lower() == "cpu" else f"write --gpu 0, or {cpu}"


def _quiet(value: str, command: Sequence[str]) -> str:
    return f"write {_set('display', 0)} for no losses, or --minloglevel 1 for warnings only"


def _ranks(value: str, command: Sequence[str]) -> str:
    kept, value_follows = [], False
    for word in command:
        names_ranks = word.startswith("-") and _SPECIAL.get(_name(word)) is _ranks
        if not names_ranks and not (value_follows and word == value):
            kept.append(word)
        value_follows = names_ranks and "=" not in word
    return f"write mpirun -n {value or 'N'} bpt {shlex.join(kept)}"


_SPECIAL: dict[str, Callable[[str, Sequence[str]], str]] = {
    **dict.fromkeys(("epochs", "num_epochs", "max_epochs", "max_epoch", "n_epochs", "e"), _epochs),
    **dict.fromkeys(("batch_size", "batch", "bs", "b"), _batch_size),
    **dict.fromkeys(("data", "data_dir", "data_path", "dataset"), _data),
    **dict.fromkeys(("resume", "resume_from", "checkpoint", "ckpt"), _resume),
    **dict.fromkeys(("device", "cuda"), _device),
    **dict.fromkeys(("quiet", "q", "silent"), _quiet),
    **dict.fromkeys(("nproc", "nproc_per_node", "np", "n", "nprocs", "num_procs", "world_size", "ranks"), _ranks),
}
"""Flags that no solver field replaces → the function that returns what to write, from the value and the command."""


def _train_data(command: Sequence[str]) -> TrainData | None:
    """Return the training data of the network; ``None`` if the command line has no solver, or the solver is wrong."""
    named = [value for flag, value in _flags(command) if _SOLVER.fullmatch(flag)]
    if not named:
        return None
    from bpt.config.plan.nets import train_plan
    from bpt.config.plan.resolve import resolve
    from bpt.config.proto.sources import read_solver
    from bpt.graph.layer_specs import layer_specs
    from bpt.graph.state import filter_layers
    from bpt.nn.layers import LAYERS
    from bpt.nn.layers.prefetching import PrefetchingDataLayer

    try:
        plan = resolve(read_solver(named[-1]))
        net = train_plan(plan)
        for spec in filter_layers(layer_specs(net.source.param, net.source.origins), net.state):
            kind = LAYERS[spec.type]
            if issubclass(kind, PrefetchingDataLayer):
                with closing(kind.open(spec)) as source:
                    batch = kind.settings_of(spec).batch_size
                    return TrainData(spec, kind.field, batch, plan.optim.iter_size, len(source))
    except BptError:
        return None
    return None
