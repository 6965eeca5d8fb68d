"""``caffe.draw``: the picture of a net, as ``bpt draw`` makes it; Graphviz is not needed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import Message

from bpt.apps.arguments import checked_kind
from bpt.apps.draw.net_drawing import ALL, FORMATS, DrawRequest
from bpt.apps.draw.net_drawing import draw_net as write_picture
from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb


def draw_net(
    caffe_net: pb.NetParameter, rankdir: str, ext: str = "png", phase: int | None = None, display_lrm: bool = False
) -> bytes:
    """Return the picture of a net as the bytes of a file.

    Args:
        rankdir: direction from the data to the loss: "TB" top to bottom, "LR" left to right, "BT" bottom to top.
        ext: format of the file: "png", "svg" or "pdf".
        phase: phase whose layers to draw; ``None`` draws all layers.
        display_lrm: show the multipliers of learning rates.

    Raises:
        UserError: the format is unknown, matplotlib is missing, or the net is wrong.
    """
    if f".{ext}" not in FORMATS:
        raise UserError(f'draw_net: ext is one of {", ".join(FORMATS)}, without the dot, not "{ext}"')
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / f"net.{ext}"
        _draw(caffe_net, picture, rankdir, phase, display_lrm)
        return picture.read_bytes()


def draw_net_to_file(
    caffe_net: pb.NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Write the picture of a net in the format that the suffix of ``filename`` names (see ``draw_net``)."""
    _draw(caffe_net, Path(filename), rankdir, phase, display_lrm)


def _draw(net: pb.NetParameter, picture: Path, rankdir: str, phase: int | None, display_lrm: bool) -> None:
    if rankdir not in ("TB", "LR", "BT"):
        raise UserError(f'rankdir is "TB", "LR" or "BT", not {rankdir!r}')
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "net.prototxt"
        checked_kind(net, Message, "draw_net: the net")
        text.write_text(text_format.MessageToString(net), encoding="utf-8")
        shown = ALL if phase is None else pb.Phase.Name(phase)
        write_picture(
            DrawRequest(model=str(text), output=str(picture), phase=shown, direction=rankdir, rates=display_lrm)
        )
