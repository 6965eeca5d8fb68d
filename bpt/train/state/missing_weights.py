"""Finds the layers of a net that are in no file of weights, with alternatives in the files, and refuses or warns."""

from __future__ import annotations

import difflib
import enum
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from google.protobuf.message import Message

from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import is_repeated
from bpt.graph.layer_graph import Edge, LayerGraph, LayerNode, Param
from bpt.train.state.stored import StoredBlob, StoredLayers, shape_string

LOG = logging.getLogger("bpt")
_MOST = 3  # names that a message lists
_WITHOUT_DRAWS = ("constant", "bilinear")  # fillers that give the same numbers every time


class MissingWeights(enum.Enum):
    """The treatment of a layer with parameters that no file of weights has."""

    WARN = "warn"
    REFUSE_RANDOM = "refuse random numbers"
    """Refuse the requested outputs if they depend on such a layer, unless the text itself gives the layer's numbers."""
    REFUSE = "refuse"

    @classmethod
    def of_flags(cls, strict: bool, allow_random: bool) -> MissingWeights:
        """Return the treatment by ``--strict`` and ``--allow-random``; without them random weights are refused."""
        return cls.REFUSE if strict else cls.WARN if allow_random else cls.REFUSE_RANDOM


@dataclass(frozen=True)
class SourceLayer:
    """A layer with weights in a file that the net does not have."""

    name: str
    path: str
    blobs: tuple[StoredBlob, ...]

    def fits(self, params: Collection[Param]) -> bool:
        """Return whether its blobs have the shapes of ``params``."""
        return len(self.blobs) == len(params) and all(
            blob.fits(param.shape) for blob, param in zip(self.blobs, params, strict=True)
        )


@dataclass
class WeightCoverage:
    """The parameters of a net that files of weights have filled, and the files' layers that the net lacks.

    Attributes:
        graph: the graph of the net.
        paths: the files, in order.
        names: the names of all layers in the files.
        filled: indices of the parameters that a file has; for a shared parameter, its owner's index.
        ignored: the files' layers with weights that the net does not have, by name.
    """

    graph: LayerGraph
    paths: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    filled: set[int] = field(default_factory=set)
    ignored: dict[str, SourceLayer] = field(default_factory=dict)

    def with_file(self, path: str, stored: StoredLayers) -> WeightCoverage:
        """Return the coverage by these files and the one at ``path``, whose layers are ``stored``."""
        filled = {
            self.graph.params[index].owner
            for node in self.graph.nodes
            for index in node.params
            if self.graph.params[index].blob in stored.get(node.name, {})
        }
        ignored = {
            name: SourceLayer(name, path, tuple(blobs[index] for index in sorted(blobs)))
            for name, blobs in stored.items()
            if blobs and name not in self.graph.index_of
        }
        return WeightCoverage(
            self.graph, [*self.paths, path], self.names | set(stored), self.filled | filled, self.ignored | ignored
        )

    def missing(self) -> list[LayerNode]:
        """Return the layers whose own parameters are in no file, in order."""
        return [node for node in self.graph.nodes if self._missing_of(node)]

    def check(
        self,
        treatment: MissingWeights = MissingWeights.WARN,
        asked: Iterable[Edge] = (),
        remedy: str = "",
        now: str = "it is as its fillers made it",
    ) -> None:
        """Warn of each layer that is in no file, and refuse it as ``treatment`` says.

        Args:
            asked: the requested outputs, by default all; layers on which they do not depend may be missing.
            remedy: the way to accept such layers, as the end of a sentence.
            now: words for the current values of such a layer.

        Raises:
            FileError: a layer's weights are missing, and that is refused.
        """
        missing = self.missing()
        for node in missing:
            LOG.warning("%s", self._warning(node, now))
        if treatment is MissingWeights.REFUSE_RANDOM:
            needed = _needed_for(self.graph, asked)
            missing = [node for node in missing if node.index in needed and not self._is_said_by_text(node)]
        if missing and treatment is not MissingWeights.WARN:
            names = ", ".join(node.name for node in missing[:_MOST]) + ", …" * (len(missing) > _MOST)
            several = len(missing) > 1
            why = (
                ", so what the net says would be made of untrained numbers"
                if treatment is MissingWeights.REFUSE_RANDOM
                else ""
            )
            raise FileError(
                ", ".join(dict.fromkeys(self.paths)),
                f"layer{'s' * several} {names} {'are' if several else 'is'} in none of the weights{why}"
                f"{'; '.join(['', *self._instead(missing[0])])}; rename the layer{'s' * several} as the weights call "
                f"{'them' if several else 'it'}, or add the file that has {'them' if several else 'it'}{remedy}",
            )

    def _warning(self, node: LayerNode, now: str) -> str:
        missing, own = self._missing_of(node), [self.graph.params[index] for index in node.params]
        what = f"Layer {node.name}"
        if len(missing) < sum(not param.shared for param in own):
            what += f" (blob {', '.join(str(param.blob) for param in missing)})"
        hint = "; ".join(["", *self._instead(node)])
        return f"{what} is in none of the weights; {now}{hint}"

    def _missing_of(self, node: LayerNode) -> list[Param]:
        own = (self.graph.params[index] for index in node.params)
        return [param for param in own if not param.shared and param.index not in self.filled]

    def _instead(self, node: LayerNode) -> Iterator[str]:
        """Yield alternatives in the files: layers of the same shapes, else those with the nearest names."""
        own = [self.graph.params[index] for index in node.params]
        fitting = [layer for layer in self.ignored.values() if layer.fits(own)]
        listed = _nearest(node.name, fitting or self.ignored.values())
        if fitting:
            names = ", ".join(f"{layer.name} ({layer.path})" for layer in listed)
            yield f"the weights have {names}, of the same shapes, which the net does not have"
        elif listed:
            names = ", ".join(
                f"{layer.name} ({layer.path}: {', '.join(shape_string(blob.shape) for blob in layer.blobs)})"
                for layer in listed
            )
            yield f"the weights have {names}, of other shapes, which the net does not have"
        elif self.paths:
            yield "the net has all layers that the weights have"

    def _is_said_by_text(self, node: LayerNode) -> bool:
        """Return whether the layer's text determines all its numbers, as for a bilinear kernel, without random ones."""
        missing = self._missing_of(node)
        if any(param.filler.type not in _WITHOUT_DRAWS for param in missing):
            return False
        return missing[0].filler in _fillers_in(node.spec.param)


def _nearest(name: str, layers: Iterable[SourceLayer]) -> list[SourceLayer]:
    """Return a few layers whose names are most like ``name``."""
    return sorted(layers, key=lambda layer: -difflib.SequenceMatcher(None, name, layer.name).ratio())[:_MOST]


def _fillers_in(message: Message) -> Iterator[pb.FillerParameter]:
    """Yield all fillers that the text of a layer gives."""
    for each, value in message.ListFields():
        if each.message_type is None:
            continue
        for inner in value if is_repeated(each) else (value,):
            if isinstance(inner, pb.FillerParameter):
                yield inner
            else:
                yield from _fillers_in(inner)


def _needed_for(graph: LayerGraph, asked: Iterable[Edge]) -> set[int]:
    """Return the indices of the layers on which ``asked`` depends; all layers if ``asked`` is empty."""
    waiting = [edge.producer for edge in asked]
    if not waiting:
        return set(range(len(graph)))
    needed: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += (graph.edges[bottom].producer for bottom in graph.nodes[node].bottoms)
    return needed
