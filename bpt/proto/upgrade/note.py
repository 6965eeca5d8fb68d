"""What an upgrade has to say."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.origin import Origin


@dataclass(frozen=True)
class Note:
    """A sentence for the log; ``str()`` puts its place before it.

    ``place`` is None if the message is not from a text. ``lossy``: something of the old file had no meaning and is
    not in the new one, which makes Caffe's upgrade tools fail after they have written their file.
    """

    text: str
    place: Origin | None = None
    lossy: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text
