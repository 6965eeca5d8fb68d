"""Nets in old formats, upgraded, for the tests beside this file."""

from __future__ import annotations

import pytest

from bpt.base.errors import PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.parse import ParsedText, parse_text
from bpt.config.proto.upgrade import Note, upgrade_net


def upgrade(text: str) -> tuple[ParsedText[pb.NetParameter], list[Note]]:
    """The net ``text``, called n.prototxt, once upgraded, and the notes on that."""
    parsed = parse_text(text, pb.NetParameter, "n.prototxt")
    return parsed, upgrade_net(parsed.message, parsed.origins, parsed.path)


def net(text: str) -> pb.NetParameter:
    """The net ``text`` in today's format."""
    return parse_text(text, pb.NetParameter).message


def refusal(text: str) -> str:
    """What is said of the net ``text``, after the name of the file."""
    with pytest.raises(PrototxtError) as caught:
        upgrade(text)
    message = str(caught.value)
    assert message.startswith("n.prototxt:")
    return message.removeprefix("n.prototxt:")
