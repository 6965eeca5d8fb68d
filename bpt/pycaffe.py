"""The Python interface, with pycaffe's names and meaning: ``bpt.Net``, ``bpt.get_solver``.

Arrays handed out (``net.blobs["data"].data``) are numpy arrays that may be written to:
``blob.data[...] = x`` sets the blob for the next pass, and after a pass the same array shows what it left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bpt import net as core
from bpt.context import RunContext
from bpt.errors import UserError, did_you_mean
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import per_layer
from bpt.operators.local import LocalOperator
from bpt.proto import bpt_pb2 as pb
from bpt.proto.solver import read_solver
from bpt.solvers import snapshot
from bpt.solvers.nets import NetPlan, file_plan
from bpt.solvers.solver import Solver as CoreSolver

Array = npt.NDArray[np.float32]


class _Mirror:
    """A numpy array that shows a tensor and takes what the caller writes into it back to the tensor.

    ``fetch`` gives the tensor as it is now; a pass may put another one in its place.
    """

    def __init__(self, fetch: Callable[[], Tensor]) -> None:
        self._fetch = fetch
        self._array: Array | None = None

    def array(self) -> Array:
        """The array; always the same object as long as the shape stays."""
        tensor = self._fetch().detach()
        if self._array is None or self._array.shape != tuple(tensor.shape):
            self._array = tensor.cpu().numpy()
        return self._array

    def push(self) -> None:
        """Before a pass: what the caller wrote goes to the tensor."""
        if self._array is not None:
            tensor = self._fetch().detach()
            if tuple(tensor.shape) == self._array.shape and not self._is(tensor):
                tensor.copy_(torch.from_numpy(self._array))

    def pull(self) -> None:
        """After a pass: what the tensor holds goes to the array that the caller has."""
        if self._array is not None:
            tensor = self._fetch().detach()
            if tuple(tensor.shape) == self._array.shape and not self._is(tensor):
                np.copyto(self._array, tensor.cpu().numpy())

    def _is(self, tensor: Tensor) -> bool:
        assert self._array is not None
        return tensor.device.type == "cpu" and tensor.data_ptr() == self._array.ctypes.data


class Blob:
    """A blob or parameter: ``data`` and ``diff``, numpy arrays of float32 in the blob's shape."""

    def __init__(
        self, data: Callable[[], Tensor], diff: Callable[[], Tensor], reshape: Callable[[tuple[int, ...]], None]
    ) -> None:
        self._data, self._diff, self._reshape = _Mirror(data), _Mirror(diff), reshape

    @property
    def data(self) -> Array:
        return self._data.array()

    @property
    def diff(self) -> Array:
        return self._diff.array()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def count(self) -> int:
        """Number of elements."""
        return self.data.size

    def reshape(self, *shape: int) -> None:
        """Give an input of the net another shape; ``net.reshape()`` or the next forward carries it on.

        Raises:
            UserError: the blob is not an input of the net.
        """
        self._reshape(shape)


class Net:
    """A network as pycaffe shows it.

    Args:
        path: the network's text file.
        phase: ``bpt.TRAIN`` or ``bpt.TEST``. pycaffe's old order ``Net(path, weights, phase)`` works too.
        weights: a ``.caffemodel`` (or HDF5) file to start from.
        level, stages: the rest of the NetState.
        device: where to compute, e.g. ``"cuda"``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        phase: int | str,
        weights: str | int | None = None,
        *,
        level: int = 0,
        stages: Sequence[str] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        if isinstance(phase, str):
            phase, weights = weights if isinstance(weights, int) else pb.TEST, phase
        assert not isinstance(weights, int)
        plan = file_plan(os.fspath(path), phase, level, tuple(stages))
        net = core.Net(plan.graph(), RunContext()).to(device)
        self._show(plan, LocalOperator(net, per_layer(net.graph), device))
        if weights is not None:
            self.copy_from(weights)

    @classmethod
    def _of(cls, plan: NetPlan, operator: LocalOperator) -> Net:
        """Show a net that a solver has built."""
        shown = cls.__new__(cls)
        shown._show(plan, operator)
        return shown

    def _show(self, plan: NetPlan, operator: LocalOperator) -> None:
        self._plan = plan
        self._operator = operator
        self._new_shapes: dict[str, tuple[int, ...]] = {}
        self.blobs: dict[str, Blob] = {name: self._blob(name) for name in self._graph.blobs}
        self.params: dict[str, list[Blob]] = {
            node.name: [self._param_blob(index) for index in node.params] for node in self._graph.nodes if node.params
        }

    @property
    def _graph(self) -> LayerGraph:
        return self._operator.net.graph

    def _blob(self, name: str) -> Blob:
        def data() -> Tensor:
            edge = self._graph.blobs[name]
            if edge.index not in self._operator.values:
                self._operator.feed({edge.index: torch.zeros(edge.shape)})
            return self._operator.values[edge.index]

        def diff() -> Tensor:
            # Of a blob that layers rewrite in place, the diff that stands at the end is the first version's.
            versions = [edge for edge in self._graph.edges if edge.blob == name]
            known = [edge for edge in versions if edge.index in self._operator.diffs]
            edge = (known or versions[-1:])[0]
            return self._operator.diffs.setdefault(edge.index, torch.full_like(data(), edge.loss_weight))

        def reshape(shape: tuple[int, ...]) -> None:
            if name not in self.inputs:
                raise UserError(f'blob "{name}" is no input of the net ({", ".join(self.inputs)}): its shape follows')
            self._new_shapes[name] = shape

        return Blob(data, diff, reshape)

    def _param_blob(self, index: int) -> Blob:
        param = self._graph.params[index]
        value = self._operator.net.value(param)

        def diff() -> Tensor:
            if value.grad is None:
                value.grad = torch.zeros_like(value)
            return value.grad

        def reshape(shape: tuple[int, ...]) -> None:
            raise UserError("the shape of a parameter follows from the network's text")

        return Blob(lambda: value, diff, reshape)

    @property
    def inputs(self) -> list[str]:
        """Names of the blobs that the caller sets."""
        return list(self._graph.inputs)

    @property
    def outputs(self) -> list[str]:
        """Names of the blobs that no layer reads, sorted."""
        return [edge.blob for edge in self._graph.outputs]

    def forward(
        self,
        blobs: Sequence[str] = (),
        start: str | None = None,
        end: str | None = None,
        **inputs: npt.ArrayLike,
    ) -> dict[str, Array]:
        """Run the layers from ``start`` to ``end`` (names, both included; default all).

        Args:
            blobs: further blobs to return.
            **inputs: data for input blobs, in their shape.

        Returns:
            Output blobs (or, with ``end``, that layer's tops) and ``blobs``, by name.
        """
        self.reshape()
        for name, value in inputs.items():
            if name not in self.inputs:
                raise UserError(f'"{name}" is no input of the net{did_you_mean(name, self.inputs)}')
            self._assign(self.blobs[name].data, value, name)
        first, last = self._layer(start, 0), self._layer(end, len(self._graph) - 1)
        self._each_mirror(_Mirror.push)
        for index in range(first, last + 1):
            self._operator.forward(index)
        self._each_mirror(_Mirror.pull)
        node = self._graph.nodes[last]
        names = [self._graph.edges[e].blob for e in node.tops] if end else self.outputs
        return {name: self.blobs[name].data for name in (*names, *blobs)}

    def backward(
        self,
        diffs: Sequence[str] = (),
        start: str | None = None,
        end: str | None = None,
        **top_diffs: npt.ArrayLike,
    ) -> dict[str, Array]:
        """Run the layers backward from ``start`` to ``end`` (names, both included; default all).

        It begins with the tops' ``diff``, a loss's being its ``loss_weight``. Diffs of parameters add up
        until ``clear_param_diffs``.

        Args:
            diffs: blobs whose diffs to return besides the inputs'.
            **top_diffs: diffs of output blobs, in their shape.

        Returns:
            Diffs of the input blobs (or, with ``end``, of that layer's bottoms) and of ``diffs``.
        """
        for name, value in top_diffs.items():
            if name not in self.blobs:
                raise UserError(f'the net has no blob "{name}"{did_you_mean(name, self.blobs)}')
            self._assign(self.blobs[name].diff, value, name)
        first, last = self._layer(start, len(self._graph) - 1), self._layer(end, 0)
        self._each_mirror(_Mirror.push)
        for index in range(first, last - 1, -1):
            self._operator.backward(index)
        self._each_mirror(_Mirror.pull)
        node = self._graph.nodes[last]
        names = [self._graph.edges[e].blob for e in node.bottoms] if end else self.inputs
        return {name: self.blobs[name].diff for name in (*names, *diffs)}

    def clear_param_diffs(self) -> None:
        """Set the diffs of all parameters to zero."""
        for blob in self._param_blobs():
            blob.diff[...] = 0
        self._each_mirror(_Mirror.push)

    def reshape(self) -> None:
        """Carry new input shapes through the net; ``forward`` does it by itself."""
        if not self._new_shapes:
            return
        shapes = {name: self._graph.blobs[name].shape for name in self.inputs} | self._new_shapes
        self._new_shapes = {}
        self._operator.net.reshape(self._plan.graph(shapes))
        self._operator.reset()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights as a ``.caffemodel`` that Caffe reads."""
        self._each_mirror(_Mirror.push)
        snapshot.save_weights(self._operator.net, os.fspath(path))

    def copy_from(self, path: str | os.PathLike[str]) -> None:
        """Take the weights of layers of the same name from a ``.caffemodel`` or HDF5 file."""
        snapshot.load_weights(self._operator.net, os.fspath(path))
        self._each_mirror(_Mirror.pull)

    def _layer(self, name: str | None, default: int) -> int:
        if name is None:
            return default
        if name not in self._graph.index_of:
            raise UserError(f'the net has no layer "{name}"{did_you_mean(name, self._graph.index_of)}')
        return self._graph.index_of[name]

    def _assign(self, array: Array, value: npt.ArrayLike, name: str) -> None:
        given = np.asarray(value, np.float32)
        if given.shape != array.shape:
            raise UserError(
                f'blob "{name}" has shape {array.shape}, given {given.shape}; '
                f'net.blobs["{name}"].reshape{given.shape} changes it'
            )
        array[...] = given

    def _param_blobs(self) -> list[Blob]:
        return [blob for blobs in self.params.values() for blob in blobs]

    def _each_mirror(self, act: Callable[[_Mirror], None]) -> None:
        for blob in (*self.blobs.values(), *self._param_blobs()):
            act(blob._data)
            act(blob._diff)


class Solver:
    """A solver as pycaffe shows it: ``net``, ``test_nets``, ``iter``, ``step``, ``solve``.

    All blobs and diffs of its nets can be looked at between steps.
    """

    def __init__(self, path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> None:
        self._solver = CoreSolver(read_solver(os.fspath(path), overrides), observable=True)
        self.net = Net._of(*self._solver.train)
        self.test_nets = [Net._of(*test) for test in self._solver.tests]

    @property
    def iter(self) -> int:
        """Iterations done."""
        return self._solver.iter

    def step(self, iterations: int) -> None:
        """Train ``iterations`` more iterations."""
        self._run(lambda: self._solver.step(iterations))

    def solve(self, path: str | None = None) -> None:
        """Train to ``max_iter``, from the solver state at ``path`` if given."""
        if path is not None:
            self.restore(path)
        self._run(self._solver.solve)

    def snapshot(self) -> None:
        """Write weights and solver state under ``snapshot_prefix``."""
        self._run(self._solver.snapshot)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Go on from the solver state at ``path``."""
        self._run(lambda: self._solver.restore(os.fspath(path)))

    def _run(self, act: Callable[[], object]) -> None:
        nets = (self.net, *self.test_nets)
        for net in nets:
            net._each_mirror(_Mirror.push)
        act()
        for net in nets:
            net._each_mirror(_Mirror.pull)


def get_solver(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Solver:
    """The solver that the text file at ``path`` describes; ``overrides`` are ``--set`` snippets."""
    return Solver(path, overrides)


def load_module(path: str | os.PathLike[str], weights: str | None = None, phase: int = pb.TEST) -> nn.Module:
    """A network text as a plain ``torch.nn.Module``: tensors in (its inputs, in order), tensors out."""
    net = core.Net(file_plan(os.fspath(path), phase).graph())
    if weights is not None:
        snapshot.load_weights(net, weights)
    return net
