"""An operator program: the operators of a piece of work in TorchScript, without Python and autograd between them.

A pass of training spends a part of its time between kernels: in the Python of layers, and in autograd, which makes a
graph and walks it back. Both choose the same operators again in each iteration. Torch shows them to a recorder, once,
below autograd. So the gradients' operators are among them, as are those inside of functions of ours. A program calls
them in the same order with the same numbers, so its results are the same, bit for bit. Torch must not optimise it.

Classes of torch that record and make programs are not all public, so compare a program with the work before use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

Program = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""Does the work on inputs of the recorded shapes; returns what it makes."""

_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
"""The memory formats, at the places by which TorchScript knows them."""
_Place = tuple[object, ...]


def record_program(work: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]) -> Program:
    """Do ``work`` once, and return a program that does the same.

    Args:
        work: returns what it makes; it depends on nothing but the values of ``inputs``, and of tensors that stay the
            same. It must read no value on the host: the recorder sees only some such reads.
        inputs: tensors that ``work`` reads or changes.

    Raises:
        RuntimeError: ``work`` draws random numbers, reads a value, or does what no program can do.
    """
    recorder = _Recorder(inputs)
    with recorder:
        made = work()
    return recorder.program(made)


class _Recorder(TorchDispatchMode):
    """Writes each operator that is called inside into a graph of TorchScript.

    A tensor is known by its place in memory, because autograd hands on other objects for it. A weak reference to its
    storage keeps the number of the storage from being used again, but not the memory.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph: Any = torch._C.Graph()
        self._values: dict[_Place, torch._C.Value] = {}
        self._storages: list[StorageWeakRef] = []
        self._constants: list[Tensor] = []
        for tensor in inputs:
            self._add(tensor, self._graph.addInput())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes a second

    def __torch_dispatch__(
        self, operator: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        schema, kwargs = operator._schema, kwargs or {}
        arguments = [
            self._value(_argument(place, each, args, kwargs), each.type) for place, each in enumerate(schema.arguments)
        ]
        result = operator(*args, **kwargs)
        results = [result] if isinstance(result, Tensor) else [] if result is None else result
        if not isinstance(results, Sequence):
            if schema.arguments and isinstance(schema.arguments[0].type, torch._C.TensorType):
                raise RuntimeError(f"{schema.name} reads a value")
            return result  # such as the common type of two types
        if torch.Tag.nondeterministic_seeded in operator.tags:
            raise RuntimeError(f"{schema.name} draws random numbers")
        known = [each is None or _place(each) in self._values for each in results]
        if schema.is_mutable and not all(known):
            raise RuntimeError(f"{schema.name} changes the shape of a tensor")
        if schema.is_mutable or not all(known):  # another view of the same elements is the same tensor
            self._call(schema, arguments, results)
        return result

    def _call(self, schema: Any, arguments: Sequence[torch._C.Value], results: Sequence[Tensor | None]) -> None:
        values = self._insert(schema.name, arguments, [each.type for each in schema.returns])
        if values and isinstance(schema.returns[0].type, torch._C.ListType):
            values = self._insert("prim::ListUnpack", values, [torch._C.TensorType.get()] * len(results))
        for tensor, value in zip(results, values, strict=True):
            if tensor is not None and _place(tensor) not in self._values:
                self._add(tensor, value)

    def _insert(self, kind: str, arguments: Sequence[torch._C.Value], types: Sequence[Any]) -> list[torch._C.Value]:
        node = self._graph.insertNode(self._graph.create(kind, list(arguments), len(types)))
        values = list(node.outputs())
        for value, type in zip(values, types, strict=True):
            value.setType(type)
        return values

    def _add(self, tensor: Tensor, value: torch._C.Value) -> None:
        self._storages.append(StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]
        self._values[_place(tensor)] = value

    def _value(self, argument: Any, type: Any) -> torch._C.Value:
        """Return an argument of an operator as a value of the graph; ``type`` is what the operator takes."""
        if isinstance(type, torch._C.OptionalType):
            type = type.getElementType()
        if isinstance(argument, Tensor):
            if _place(argument) not in self._values:
                self._constants.append(argument)
                self._add(argument, self._graph.addInput())
            return self._values[_place(argument)]
        if isinstance(argument, list | tuple):
            elements = [self._value(each, type.getElementType()) for each in argument]
            return self._insert("prim::ListConstruct", elements, [type])[0]
        constant: torch._C.Value = self._graph.insertConstant(
            _FORMATS.index(argument) if argument in _FORMATS else argument
        )
        return constant

    def program(self, made: Sequence[Tensor]) -> Program:
        """Return a function that makes the tensors ``made``."""
        tensor = torch._C.TensorType.get()
        values = [self._value(each, tensor) for each in made]
        (result,) = self._insert("prim::TupleConstruct", values, [torch._C.TupleType([tensor] * len(values))])
        self._graph.registerOutput(result)
        function, constants = torch._C._create_function_from_graph("program", self._graph), tuple(self._constants)

        def run(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
            below = torch._C._AutoDispatchBelowAutograd()
            with torch.no_grad(), below, torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
                found: Sequence[Tensor] = function(*inputs, *constants)
                return found

        return run


def _place(tensor: Tensor) -> _Place:
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _argument(place: int, argument: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if place < len(args):
        return args[place]
    return kwargs.get(argument.name, argument.default_value)
