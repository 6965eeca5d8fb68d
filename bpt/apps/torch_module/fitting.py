"""Check before a module runs whether its net can take the inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from bpt.base.errors import BptError, UserError
from bpt.base.log import plural
from bpt.config.plan.nets import NetPlan
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape
from bpt.nn.net_graph import build_graph_of

Shapes = tuple[Shape, ...]


class Fitting:
    """Checks the inputs of a net; it remembers the shapes that fit.

    Args:
        graph: the net's graph.
        plan: the plan that the graph was built from.
    """

    def __init__(self, graph: LayerGraph, plan: NetPlan) -> None:
        self._graph = graph
        self._plan = plan
        self._edges = graph.input_edges
        self._known: set[Shapes] = set()  # with axis 0 as in the text
        self._passed: set[tuple[Shape | None, ...]] = set()  # as they were given

    def check(self, inputs: Sequence[object]) -> None:
        """Raise a UserError, which names an input and its shape, unless these are tensors that the net can take.

        Batches of any size fit if the sizes of the inputs have the same ratios as in the text. Other shapes must suit
        the layers.
        """
        given = tuple(value.shape if isinstance(value, Tensor) else None for value in inputs)
        if given in self._passed:
            return
        if len(inputs) != len(self._edges):
            names = ", ".join(edge.blob for edge in self._edges)
            raise UserError(f"the net takes {plural(len(self._edges), 'input')} ({names}), given {len(inputs)}")
        shapes = []
        for edge, value in zip(self._edges, inputs, strict=True):
            if not isinstance(value, Tensor):
                kind = type(value)
                remedy = "; torch.from_numpy makes one" if kind.__module__ == "numpy" else ""
                raise UserError(
                    f'input "{edge.blob}" must be a torch.Tensor of shape {edge.shape}, not a '
                    f"{kind.__module__}.{kind.__qualname__}{remedy}"
                )
            shapes.append(tuple(value.shape))
        asked = self._in_batches_of_the_text(shapes)
        if asked not in self._known:
            self._try(asked, shapes)
            self._known.add(asked)
        self._passed.add(given)

    def explain_dtype(self, inputs: Sequence[Tensor], params: Iterable[Tensor], error: BptError) -> None:
        """Raise a UserError if an input has another dtype than the parameters, which may have caused ``error``."""
        types = {value.dtype for value in params}
        for edge, value in zip(self._edges, inputs, strict=True):
            if len(types) == 1 and value.dtype not in types:
                (wanted,) = types
                raise UserError(
                    f'input "{edge.blob}" {tuple(value.shape)} is of {value.dtype}, the parameters are of {wanted}; '
                    f"give it as .to({wanted}) ({error})"
                ) from error

    def _in_batches_of_the_text(self, shapes: Sequence[Shape]) -> Shapes:
        """Return the shapes with axis 0 as in the text, if axis 0 of all inputs has changed by the same factor."""
        text = [edge.shape for edge in self._edges]
        pairs = list(zip(shapes, text, strict=True))
        if pairs and all(given and stated for given, stated in pairs):
            (first, stated), *_ = pairs
            if all(shape[0] * stated[0] == first[0] * own[0] for shape, own in pairs):
                return tuple((own[0], *shape[1:]) for shape, own in pairs)
        return tuple(shapes)

    def _try(self, asked: Shapes, shapes: Sequence[Shape]) -> None:
        """Raise a UserError about ``shapes``, the given ones, unless the net can take the shapes ``asked``."""
        if asked == tuple(edge.shape for edge in self._edges):
            return
        try:
            self._infer(asked)
        except UserError as error:
            given = " and ".join(
                f'"{edge.blob}" {shape} (in the text {edge.shape})'
                for edge, shape in zip(self._edges, shapes, strict=True)
                if shape != edge.shape
            )
            raise UserError(f"the net cannot take input {given}: {error}") from None

    def _infer(self, inputs: Shapes) -> None:
        """Build the graph for these shapes; raise a LayerError if its parameters would have other shapes."""
        graph = build_graph_of(self._plan, {edge.blob: shape for edge, shape in zip(self._edges, inputs, strict=True)})
        for before, param in zip(self._graph.params, graph.params, strict=True):
            if param.shape != before.shape:
                node = graph.nodes[param.layer]
                bottoms = ", ".join(str(graph.edges[edge].shape) for edge in node.bottoms)
                raise node.spec.error(
                    f"would need a parameter of shape {param.shape} for bottom {bottoms}; it has one of {before.shape}"
                )
