"""Net: a network as pycaffe shows it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType

import numpy.typing as npt
import torch

from bpt.apps.arguments import (
    Named,
    Path,
    checked_call,
    checked_device,
    checked_kind,
    checked_names,
    checked_path,
    checked_whole,
    floats,
    listed,
    phase_and_weights,
    several,
)
from bpt.apps.torch_module.loading import load_files
from bpt.base.errors import UserError, did_you_mean
from bpt.base.malloc_settings import keep_freed_memory
from bpt.caffe.core import mode
from bpt.caffe.core.all_batches import forward_all, forward_backward_all
from bpt.caffe.core.blob import Blob, net_blob, net_mirrors, param_blob, param_mirrors
from bpt.caffe.core.image_files import classify, preprocess
from bpt.caffe.core.mirror import Array
from bpt.caffe.core.operator import BlobOperator, Callback
from bpt.caffe.core.raised import as_raised
from bpt.caffe.core.single import Single
from bpt.caffe.core.structure import NetStructure
from bpt.caffe.core.whole_pass import WholePass
from bpt.config.plan.nets import NetPlan, file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import debug_info
from bpt.graph.reshaping import reshape_graph
from bpt.nn.layers.memory_data import MemoryData
from bpt.nn.net import Net as CoreNet
from bpt.nn.net_graph import build_graph_of
from bpt.nn.pass_context import PassContext
from bpt.system.device import CPU
from bpt.train import state as snapshot
from bpt.train.runtime.half_precision import net_in
from bpt.train.state import MissingWeights, WeightCoverage


class Net(NetStructure, Single):
    """A network, its blobs and its parameters.

    ``blobs`` maps each blob's name to its Blob. ``params`` maps the name of each layer that has parameters to the list
    of them. Both follow the order of the text. An unknown name raises an UnknownNameError, which is a UserError and a
    KeyError. The process keeps freed memory for reuse, as the command line does, which makes TEST nets faster. A Net
    cannot be copied or pickled; make another of the same text.

    Args:
        network_file: the network's text file.
        phase: ``bpt.TRAIN`` or ``bpt.TEST``; there is no default.
        weights: a file of weights; by default the text's fillers draw the parameters, the same ones every time.
            pycaffe's old order ``Net(network_file, weights, phase)`` works too.
        level, stages: the rest of the NetState.
        device: device to compute on, e.g. ``"cuda"``; by default that of ``set_mode_cpu`` or ``set_mode_gpu`` of
            ``bpt.caffe``, else the CPU.
        precision: number type of the computation, as in a solver's ``precision``: "BFLOAT16". Arrays are always
            float32.
        strict: as in ``copy_from``.

    Raises:
        UserError: the device cannot compute in this precision.
        PrototxtError: the text is wrong; the message says where.
        FileError: the weights cannot be read, or do not fit the net.
        RunError: there is not enough memory.

    An exception of a Python layer's code reaches the caller unchanged.

    Attributes:
        before_forward, after_forward, before_backward, after_backward: each takes a function, which every later pass
            calls with the number of each layer that it runs, as in ``layers``.
    """

    _no_copy = (
        "a bpt.Net cannot be copied or pickled: make another, bpt.Net(path, phase, weights=...), with weights that "
        "save() has written; bpt.load_module gives a module that can be copied and pickled"
    )

    blobs: dict[str, Blob]
    params: dict[str, list[Blob]]

    def __init__(
        self,
        network_file: Path,
        phase: int | Path | None = None,
        weights: Path | int | None = None,
        *,
        level: int = 0,
        stages: str | Sequence[str] | None = (),
        device: torch.device | str | None = None,
        precision: str = "FLOAT32",
        strict: bool = False,
    ) -> None:
        phase, weights = phase_and_weights(phase, weights)
        chosen = mode.chosen_device() or CPU if device is None else checked_device(device)
        level = checked_whole(level, "level")
        plan = file_plan(checked_path(network_file, "the network"), phase, level, checked_names(stages, "stages"))
        checked_kind(precision, str, "precision")
        with as_raised():
            net = net_in(precision, build_graph_of(plan), chosen, PassContext(mode.chosen_seed() or 0))
        operator = BlobOperator(net, chosen)
        operator.whole = WholePass(operator.net)  # not for a solver's nets: others change their shared parameters
        if operator.whole.fits:
            keep_freed_memory()
        self._show(operator, plan)
        if weights is not None:
            try:
                self.copy_from(weights, strict=strict)
            except BaseException:
                self.close()
                raise

    @classmethod
    def _of(cls, operator: BlobOperator, plan: NetPlan) -> Net:
        """Return a Net for a net that a solver has built."""
        shown = cls.__new__(cls)
        shown._show(operator, plan)
        return shown

    def _show(self, operator: BlobOperator, plan: NetPlan) -> None:
        self._operator = operator
        self._plan = plan
        self._coverage = WeightCoverage(operator.net.graph)  # which file each parameter comes from
        self._fitted = len(operator.net.graph) - 1  # the last layer whose shapes follow from the inputs' shapes
        graph = operator.net.graph
        blobs = {name: net_mirrors(operator, name) for name in graph.blobs}
        owned = {param.index: param_mirrors(operator, operator.net.value(param)) for param in graph.learnable}
        self._mirrors = [mirror for pair in (*blobs.values(), *owned.values()) for mirror in pair]
        self._data = {pair.data: graph.blobs[name].index for name, pair in blobs.items()}
        self._parameters = {pair.data for pair in owned.values()}
        operator.in_use = _scope_of(weakref.ref(self))
        shown = {name: net_blob(operator, name, pair) for name, pair in blobs.items()}
        self.blobs = Named(shown, "the net has no blob")
        params = {
            node.name: [param_blob(p.shape, owned[p.owner]) for p in (graph.params[index] for index in node.params)]
            for node in graph.nodes
            if node.params
        }
        self.params = Named(params, "the net has no layer with parameters called")

    @property
    def _core(self) -> CoreNet:
        return self._operator.net

    preprocess = preprocess
    classify = classify
    forward_all = forward_all
    forward_backward_all = forward_backward_all

    def forward(
        self,
        blobs: str | Sequence[str] | None = (),
        start: str | None = None,
        end: str | None = None,
        **inputs: npt.ArrayLike,
    ) -> dict[str, Array]:
        """Run the layers from ``start`` to ``end`` (names, both included; default all).

        The blobs up to ``end`` get the shapes that follow from the inputs; later layers keep theirs.

        Args:
            blobs: further blobs to return.
            inputs: data for input blobs, in their shape; an input that is left out keeps its data.

        Returns:
            Data of the outputs (or, with ``end``, of that layer's tops) and of ``blobs``, by name.

        Raises:
            UserError: the net does not have a name, or a shape does not fit.
        """
        first, last = self._layer(start, 0), self._layer(end, len(self._graph) - 1)
        blobs = checked_names(blobs, "forward: blobs")
        self._fit(last)
        for name, value in inputs.items():
            if name not in self.inputs:
                raise UserError(f'"{name}" is not an input of the net ({", ".join(self.inputs) or "it has none"})')
            self._assign(self.blobs[name].data, value, name)
        tops = self.top_names[end] if end else self.outputs
        wanted = self._named(*tops, *blobs)
        with self._in_use(), as_raised():
            # As in the solver's loop, each pass through the whole net has new random numbers.
            context = self._operator.net.context
            if first or last < len(self._graph) - 1:
                self._operator.separate_layers()
            if not first:
                self._operator.begin_pass(context.iteration, context.pass_number + 1)
                if last == len(self._graph) - 1 and self._forward_whole(wanted):
                    first = last + 1
            for index in range(first, last + 1):
                self._operator.forward(index)
                if self._graph.debug_info:
                    debug_info.log_forward(self._operator, index)
        return {name: blob.data for name, blob in wanted.items()}

    def _forward_whole(self, wanted: Iterable[str]) -> bool:
        """Try to run the whole net as one pass, and return whether that worked.

        It does not while the caller holds an array of parameters, and so may write to them unnoticed.
        """
        held = [mirror for mirror in self._mirrors if mirror.in_use and mirror.is_referenced]
        if not self._parameters.isdisjoint(held):
            self._operator.separate_layers()
        edges = {self._graph.blobs[name].index for name in wanted}
        edges.update(self._data[mirror] for mirror in held if mirror in self._data)
        return self._operator.forward_whole(edges)

    def backward(
        self,
        diffs: str | Sequence[str] | None = (),
        start: str | None = None,
        end: str | None = None,
        **top_diffs: npt.ArrayLike,
    ) -> dict[str, Array]:
        """Run the layers backward from ``start`` to ``end`` (names, both included; default all).

        The pass begins with the ``diff`` of the tops, which for a loss is its ``loss_weight``. Diffs of parameters
        accumulate until ``clear_param_diffs``. A forward pass may be followed by any number of backward passes.

        Args:
            diffs: further blobs whose diffs to return.
            top_diffs: diffs of blobs to begin with, in their shape.

        Returns:
            Diffs of the inputs (or, with ``end``, of that layer's bottoms) and of ``diffs``, by name.

        Raises:
            UserError: the net does not have a name, a shape does not fit, or a layer needs a forward pass before.
        """
        first, last = self._layer(start, len(self._graph) - 1), self._layer(end, 0)
        diffs = checked_names(diffs, "backward: diffs")
        for name, blob in self._named(*top_diffs).items():
            self._assign(blob.diff, top_diffs[name], name)
        bottoms = [self._graph.edges[edge].blob for edge in self._graph.nodes[last].bottoms]
        wanted = self._named(*(bottoms if end else self.inputs), *several(diffs))
        with self._in_use(), as_raised():
            for index in range(first, last - 1, -1):
                self._operator.backward(index)
                if self._graph.debug_info:
                    debug_info.log_backward(self._operator, index)
        return {name: blob.diff for name, blob in wanted.items()}

    def set_input_arrays(self, data: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Set the arrays that the net's first MemoryData layer reads from now on.

        Args:
            data: (N, C, H, W), with N a multiple of the layer's ``batch_size``; float32 is not copied.
            labels: (N,) or, as in pycaffe, (N, 1, 1, 1).

        Raises:
            UserError: an array has another shape or no numbers, or the net has no MemoryData layer.
        """
        layer = next((layer for layer in self._operator.net.layers if isinstance(layer, MemoryData)), None)
        if layer is None:
            raise UserError("set_input_arrays gives arrays to a MemoryData layer, and the net has none")
        layer.set_arrays(floats(data, "data"), floats(labels, "labels"))

    def clear_param_diffs(self) -> None:
        """Set the diffs of all parameters to zero."""
        with self._in_use():
            for parameter in self._operator.net.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()

    def reshape(self) -> None:
        """Adapt all blobs to the shapes of the inputs; ``forward`` does it by itself.

        Raises:
            LayerError: a layer cannot work on such inputs, or would need parameters of another shape.
        """
        self._fit(len(self._graph) - 1)

    def _fit(self, last: int) -> None:
        """Adapt the blobs of the layers up to number ``last`` to the inputs' shapes, as Caffe's forward does."""
        shapes = {name: self.blobs[name].shape for name in self.inputs}
        same = all(self._graph.blobs[name].shape == shape for name, shape in shapes.items())
        if same and last <= self._fitted:
            return
        with self._in_use():
            self._operator.net.reshape(reshape_graph(self._graph, shapes, last))
            self._operator.forget_blobs(self._fitted if same else -1)
        self._fitted = last

    def share_with(self, other: Net) -> None:
        """Share the parameters of the layers with the same names in ``other``: from now on they are one memory.

        Raises:
            UserError: parameters have different shapes, types or devices; then nothing is shared.
        """
        checked_kind(other, Net, "share_with: what is given")
        mine, theirs = (net._core.values_by_name() for net in (self, other))
        pairs = {blob: (value, theirs[blob]) for blob, value in mine.items() if blob in theirs}
        for (layer, number), (own, value) in pairs.items():
            if own.shape != value.shape or own.device != value.device or own.dtype != value.dtype:
                kinds = [f"{tuple(each.shape)} on {each.device} ({each.dtype})" for each in (own, value)]
                raise UserError(f'layer "{layer}": parameter {number} is {kinds[0]}, the one to share is {kinds[1]}')
        with self._in_use(new_parameters=True), other._in_use():
            for net in (self, other):
                net._operator.complete()
                net._operator.whole = None  # the other net may change these parameters unnoticed
            for own, value in pairs.values():
                own.data = value.data
        for mirror in self._parameters:  # as in Caffe, arrays from before keep the old parameters
            mirror.forget()

    def before_forward(self, call: Callback) -> None:
        checked_call(call, "before_forward: what is given")
        self._operator.before_forward.append(self._showing(call))

    def after_forward(self, call: Callback) -> None:
        checked_call(call, "after_forward: what is given")
        self._operator.after_forward.append(self._showing(call))

    def before_backward(self, call: Callback) -> None:
        checked_call(call, "before_backward: what is given")
        self._operator.before_backward.append(self._showing(call))

    def after_backward(self, call: Callback) -> None:
        checked_call(call, "after_backward: what is given")
        self._operator.after_backward.append(self._showing(call))

    def _showing(self, call: Callback) -> Callback:
        """Return ``call`` wrapped so that, during a pass, it sees current blobs and may write to them."""
        return lambda layer: self._shown_to(lambda: call(layer))

    def _shown_to(self, call: Callable[[], object]) -> None:
        for mirror in self._mirrors:
            mirror.show()
        call()
        for mirror in self._mirrors:
            mirror.write_back()

    def save_hdf5(self, path: Path) -> None:
        """Write the weights as HDF5, whatever ``path`` ends in."""
        with self._in_use():
            snapshot.save_weights(self._operator.net, checked_path(path, "save_hdf5: what is given"), as_hdf5=True)

    def load_hdf5(self, path: Path) -> None:
        """Load weights by ``copy_from``; this is pycaffe's name for HDF5 files."""
        self.copy_from(path)

    def save(self, path: Path) -> None:
        """Write the weights in Caffe's format: HDF5 if ``path`` ends in ``.h5``, else a ``.caffemodel``."""
        with self._in_use():
            snapshot.save_weights(self._operator.net, checked_path(path, "save: what is given"))

    def copy_from(self, path: Path, strict: bool = False) -> None:
        """Copy the weights of layers of the same name from a ``.caffemodel`` or HDF5 file.

        bpt warns of a layer whose parameters are in none of the files so far, and of a layer in the file that the net
        does not have ("Ignoring source layer …"). The warnings go to the log "bpt" or, if the program has not
        configured ``logging``, to stderr.

        Args:
            strict: raise a FileError if a layer's parameters are in none of the files so far.

        Raises:
            FileError: this is not a file of weights, weights have other shapes, or a layer is missing and ``strict``
                is set; then nothing was loaded.
        """
        path = checked_path(path, "copy_from: what is given")
        missing = MissingWeights.REFUSE if strict else MissingWeights.WARN
        with self._in_use(new_parameters=True):
            self._coverage = load_files(
                self._operator.net, [path], self._coverage, missing, now="it keeps its parameters"
            )

    @property
    def _weights(self) -> list[str]:
        """The files that parameters come from."""
        return self._coverage.paths

    def close(self) -> None:
        """Stop prefetching and close the data sources, if there are any; then the net cannot read from them.

        Deleting the net does the same.
        """
        self._operator.close()

    def __repr__(self) -> str:
        graph = self._graph
        phase = pb.Phase.Name(graph.phase)
        blobs = {name: self.blobs[name].shape for name in (*self.inputs, *self.outputs)}
        told = ", ".join(f"{name} {shape}" for name, shape in blobs.items())
        return f'<Net "{graph.name}", {phase}: {len(graph)} layers, {graph.num_parameters} parameters; {told}>'

    def __enter__(self) -> Net:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _in_use(self, new_parameters: bool = False) -> Iterator[None]:
        """Keep tensors and arrays equal around a use of the net's tensors.

        Before the use, the tensors get what was written to the arrays. After it, the arrays get the tensors' values.

        Args:
            new_parameters: whether parameters change, so that backward needs another forward pass.
        """
        for mirror in self._mirrors:
            if mirror.in_use:
                mirror.write_back()
        if new_parameters:
            self._operator.complete()
        try:
            yield
        finally:
            if new_parameters:
                self._operator.forget_passes()
            for mirror in self._mirrors:
                if mirror.in_use:
                    mirror.show()

    def _layer(self, name: str | None, default: int) -> int:
        if name is None:
            return default
        if not isinstance(name, str) or name not in self._graph.index_of:
            checked_kind(name, str, "the name of a layer")
            known = self._graph.index_of
            raise UserError(f'the net has no layer "{name}"{did_you_mean(name, known) or listed(known)}')
        return self._graph.index_of[name]

    def _named(self, *names: str) -> dict[str, Blob]:
        return {name: self.blobs[name] for name in names}

    def _assign(self, array: Array, value: npt.ArrayLike, name: str) -> None:
        given = floats(value, f'what is given for blob "{name}"', array.dtype)
        if given.shape != array.shape:
            remedy = f'; net.blobs["{name}"].reshape{given.shape} changes that' if name in self.inputs else ""
            raise UserError(f'blob "{name}" has shape {array.shape}, given {given.shape}{remedy}')
        array[...] = given


def _scope_of(net: weakref.ref[Net]) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that opens the net's ``_in_use``, or nothing if the net was deleted."""

    def scope() -> AbstractContextManager[None]:
        alive = net()
        return nullcontext() if alive is None else alive._in_use()

    return scope
