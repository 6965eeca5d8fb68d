"""The state of reading a binary net of some Caffe: its signs, the notes, and the changed fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from bpt.base.errors import BptError


class Dialect(Enum):
    """The Caffe whose numbers a net has, where the Caffes differ in the meaning of a number."""

    BVLC = "BVLC's Caffe"
    NVIDIA = "NVIDIA's Caffe"
    INTEL = "Intel's Caffe"
    INTEL_1_0_5 = "Intel's Caffe 1.0.5 to 1.1.1a"
    BPT = "bpt"


class Fork(Enum):
    """A Caffe that leaves signs in a net: numbers, or layer types, that only it has."""

    NVIDIA = "NVIDIA"
    INTEL = "Intel"
    SSD = "SSD"
    RFCN = "R-FCN"
    SEGNET = "SegNet"
    DEEPLAB = "DeepLab"
    BPT = "bpt"


SIGNS_BY_TYPE: dict[str, Fork] = {
    **dict.fromkeys(
        ("AnnotatedData", "PriorBox", "MultiBoxLoss", "DetectionOutput", "DetectionEvaluate", "VideoData"), Fork.SSD
    ),
    **dict.fromkeys(("PSROIPooling", "BoxAnnotatorOHEM", "ROIPooling", "SmoothL1Loss"), Fork.RFCN),
    "DenseImageData": Fork.SEGNET,
    "ImageSegData": Fork.DEEPLAB,
}
"""Layer types that show which Caffe wrote a net."""

_CHOSEN = {Dialect.NVIDIA: Fork.NVIDIA, Dialect.INTEL: Fork.INTEL, Dialect.INTEL_1_0_5: Fork.INTEL}
_CONFLICTS = {
    Fork.NVIDIA: (Fork.INTEL,), Fork.INTEL: (Fork.NVIDIA,),
    Fork.RFCN: (Fork.NVIDIA, Fork.SEGNET), Fork.SEGNET: (Fork.NVIDIA, Fork.RFCN),
}  # fmt: skip


@dataclass
class Reading:
    """The state of reading a net.

    Attributes:
        signs: the forks whose unique content the net has.
        chosen: the dialect that the caller names; ``None``: the net itself must show it.
        notes: fields that are read in other numbers than the schema's, and omitted fields.
        changed: names of layers, each with a field of BVLC's that has another meaning in the fork. The field ``relu``
            means that a ReLU follows the layer.
    """

    signs: frozenset[Fork]
    chosen: Dialect | None = None
    notes: dict[str, None] = field(default_factory=dict)
    changed: set[tuple[str, str]] = field(default_factory=set)

    @property
    def is_intels(self) -> bool:
        """Whether the net has signs of Intel's Caffe."""
        return self._is(Fork.INTEL)

    @property
    def is_nvidias(self) -> bool:
        """Whether the net has signs of NVIDIA's Caffe."""
        return self._is(Fork.NVIDIA)

    @property
    def is_bpts(self) -> bool:
        """Whether the net has signs of bpt."""
        return self.is_plain or (self.chosen is None and Fork.BPT in self.signs)

    @property
    def is_plain(self) -> bool:
        """Whether bpt has written the net, so that each number has the meaning of bpt's schema."""
        return self.chosen is Dialect.BPT

    def is_only(self, fork: Fork) -> bool:
        """Return whether the net has signs of ``fork``, and none of a fork that uses its numbers otherwise."""
        return self._is(fork) and not any(map(self._is, _CONFLICTS.get(fork, ())))

    def _is(self, fork: Fork) -> bool:
        if self.chosen is None or (self.chosen in _CHOSEN and fork not in _CHOSEN.values()):
            return fork in self.signs
        return _CHOSEN.get(self.chosen) is fork

    @property
    def by_choice(self) -> str:
        """On whose word numbers are read as those of a Caffe, to end a note with; "": the net itself tells."""
        return f", as --dialect {self.chosen.name} says" if self.chosen else ""

    def note(self, words: str) -> None:
        """Report ``words``, once."""
        self.notes[words] = None


def ambiguous(what: str, one: str, other: str) -> BptError:
    """Return the error that ``what`` has two readings."""
    return BptError(f"{what} may be {one}, or {other}; bpt convert --dialect says which Caffe wrote the file")
