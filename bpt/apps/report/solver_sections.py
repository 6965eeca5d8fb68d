"""The part of a report about what was trained: the drawn network, and the texts of the solver and the network."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from bpt.apps.draw.net_drawing import DrawRequest, draw_net
from bpt.apps.report.markup import drawing
from bpt.base.errors import BptError
from bpt.base.user_files import read_lines
from bpt.config.proto.sources import SolverSource


def solver_sections(solver: SolverSource) -> Iterator[str]:
    """Yield the HTML of the network's drawing and of the texts.

    Args:
        solver: the solver's text; the path of the network in it is as training takes it.

    Raises:
        FileError: a text cannot be read.
    """
    net = solver.param.net or solver.param.train_net
    yield "<h2>Network</h2>"
    yield _drawing(net) if net else "<p>The solver's text has its network in itself; see the texts.</p>"
    yield "<h2>Texts</h2>\n<p>These are the files. Settings that a run got by <code>--set</code> are not in them, so"
    yield "the run may differ from the text; the closing numbers show its <code>max_iter</code>.</p>"
    for path in filter(None, (solver.path, net)):
        text = "\n".join(read_lines(path, "a text"))
        yield f"<details><summary>{escape(path)}</summary>\n<pre>{escape(text)}</pre>\n</details>"


def _drawing(net: str) -> str:
    """Return the drawn network as an SVG element, or a line that says why there is none."""
    try:
        return drawing(lambda path: draw_net(DrawRequest(model=net, output=path)))
    except BptError as error:
        return f"<p>The network is not drawn: {escape(str(error))}</p>"
