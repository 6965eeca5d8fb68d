"""What Caffe's forks added: annotations, label maps and records of objects, lists of clips and of labelled pixels, and
weights and nets in the forks' own numbers; and safetensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.data.labelled_pixels import LabelsOf
from tests.fuzz.engine import Target, run_cases, run_one
from tests.fuzz.targets.forks import TARGETS, AnnotationFiles, ClipLists, LabelMaps, PixelLists


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_files_of_forks_are_taken_or_refused(kind: type[Target], tmp_path: Path) -> None:
    run_cases(kind(tmp_path), 1, range(min(kind.short, 60)))


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (AnnotationFiles, b"2 4 5 20 1e300"),
        (AnnotationFiles, b'{"image": {"height": 1%s, "width": 2}, "annotation": []}' % (b"0" * 400)),
        (AnnotationFiles, b"<annotation><object><name>%s</name><bndbox/></object></annotation>" % (b"a" * 10**5)),
        (AnnotationFiles, b"[" * 10**5),
        (AnnotationFiles, b"<a>" * 10**5),
        (LabelMaps, b'item { name: "a" label: 1 } ' * 2),
        (ClipLists, b"video 1 " + b"1" * 5000),
        (ClipLists, b"video " + b"1" * 400 + b" 1"),
        (PixelLists, b"im0.png " + b"1" * 5000),
    ],
    ids=range(9),
)
def test_files_with_large_numbers_and_deep_nests(kind: type[Target], case: bytes, tmp_path: Path) -> None:
    if kind is PixelLists:
        case += b"\n" * ((list(LabelsOf).index(LabelsOf.IMAGE) - len(case)) % len(LabelsOf))
    assert run_one(kind(tmp_path), case).refused
