"""The tree of errors: exit statuses, places in messages, near names."""

from __future__ import annotations

import pickle

import pytest

from bpt.base import errors
from bpt.base.origin import Origin

PLACE = Origin("nets/a.prototxt", 12, 5)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (errors.UsageError("no such flag"), 2, "no such flag"),
        (errors.PrototxtError("is wrong"), 2, "is wrong"),
        (errors.PrototxtError("is wrong", PLACE), 2, "nets/a.prototxt:12:5: is wrong"),
        (errors.LayerError("conv1", "is wrong"), 2, 'layer "conv1": is wrong'),
        (errors.LayerError("conv1", "is wrong", PLACE), 2, 'nets/a.prototxt:12:5: layer "conv1": is wrong'),
        (errors.FileError("a.caffemodel", "is empty"), 2, "a.caffemodel: is empty"),
        (errors.DataError("record 3 is damaged"), 1, "record 3 is damaged"),
        (errors.WriteError("a.caffemodel", "disk full"), 1, "a.caffemodel: could not be written: disk full"),
        (errors.LostRankError("rank 3 is gone", [3]), 1, "rank 3 is gone"),
    ],
)
def test_message_and_status(error: errors.BptError, status: int, message: str) -> None:
    assert str(error) == message
    assert error.exit_status == status


def test_an_error_can_be_told_to_another_process() -> None:
    error = errors.LayerError("conv1", "is wrong", PLACE)
    told = pickle.loads(pickle.dumps(error))
    assert (type(told), str(told), vars(told)) == (errors.LayerError, str(error), vars(error))
    told = pickle.loads(pickle.dumps(errors.WriteError("a", "disk full")))
    assert (type(told), str(told), told.path) == (errors.WriteError, "a: could not be written: disk full", "a")
    told = pickle.loads(pickle.dumps(errors.LostRankError("gone", [3, 1])))
    assert (type(told), str(told), told.ranks) == (errors.LostRankError, "gone", (1, 3))


def test_who_knows_python_alone_can_catch_them() -> None:
    assert issubclass(errors.UserError, ValueError)
    assert issubclass(errors.RunError, RuntimeError)
    assert issubclass(errors.LayerError, errors.PrototxtError)


def test_what_an_error_knows() -> None:
    layer = errors.LayerError("conv1", "is wrong", PLACE)
    assert (layer.layer, layer.origin) == ("conv1", PLACE)
    assert errors.FileError("a", "is empty").path == "a"
    assert errors.WriteError("a", "disk full").path == "a"
    assert errors.LostRankError("gone").ranks == ()


@pytest.mark.parametrize(
    ("name", "hint"),
    [("Convolutoin", '; did you mean "Convolution"?'), ("relu", '; did you mean "ReLU"?'), ("Warp", ""), ("", "")],
)
def test_near_names(name: str, hint: str) -> None:
    assert errors.did_you_mean(name, ["Convolution", "Pooling", "ReLU"]) == hint


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("nosuch.txt", "trunc.txt", ""),  # only what many files have in common
        ("tranc.txt", "trunc.txt", '; did you mean "trunc.txt"?'),
        ("nope.caffemodel", "init.caffemodel", '; did you mean "init.caffemodel"?'),
    ],
)
def test_near_files(name: str, known: str, hint: str) -> None:
    assert errors.did_you_mean(name, [known]) == hint
    assert errors.did_you_mean(name, [known], folder="a b/c") == hint.replace('"', '"a b/c/', 1)


@pytest.mark.parametrize(
    ("name", "known", "is_near"),
    [
        ("ROIPooling", "Pooling", False),
        ("Resize", "Reshape", False),
        ("SoftmaxLoss", "SoftmaxWithLoss", True),
        ("LRM", "LRN", True),
        ("Tahn", "TanH", True),
        ("Flip", "Clip", False),
    ],
)
def test_only_a_slip_is_near_among_types(name: str, known: str, is_near: bool) -> None:
    assert errors.did_you_mean(name, [known], closely=True) == (f'; did you mean "{known}"?' if is_near else "")


def test_an_unknown_name_is_told_as_a_sentence() -> None:
    slip = errors.UnknownNameError('no blob "dat"', "dat", ["data", "label"], " (known: data, label)")
    assert isinstance(slip, KeyError)
    assert (str(slip), slip.is_slip) == ('no blob "dat"; did you mean "data"?', True)
    other = errors.UnknownNameError('no blob "x"', "x", ["data", "label"], " (known: data, label)")
    assert (str(other), other.is_slip) == ('no blob "x" (known: data, label)', False)
    again = pickle.loads(pickle.dumps(other))
    assert (type(again), str(again)) == (errors.UnknownNameError, str(other))


def test_nothing_is_near_to_nothing() -> None:
    assert errors.did_you_mean("x", []) == ""
