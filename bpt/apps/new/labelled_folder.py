"""Find the pictures in a folder with a sub-folder for each class, and the pictures that can be decoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import DataError, FileError
from bpt.base.log import plural
from bpt.data.image import Pixels, import_pillow
from bpt.data.image_source import read_image
from bpt.data.listed_pictures import ENDINGS, pictures_in
from bpt.data.opencv_resize import resize
from bpt.data.record_survey import survey

_COLOUR = 3
_SHOWN = 3  # names of pictures in a message
_TRAIN, _TEST = ("train", "training"), ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class LabelledPicture:
    """A picture of a class.

    Attributes:
        path: the file.
        label: the number of its class.
        is_test: whether the folder is for tests; ``None``: the folder does not say.
    """

    path: str
    label: int
    is_test: bool | None = None


@dataclass
class DecodedPictures:
    """The result of ``decode``.

    Attributes:
        whole: the pictures that can be decoded.
        left_out: a line for each file that cannot be used, with the reason.
        mean: the mean of the pixels: blue, green, red.
        pixels: the mean number of pixels of a picture.
    """

    whole: list[LabelledPicture] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    pixels: float = 0.0


def find_pictures(folder: str) -> tuple[list[str], list[LabelledPicture], list[str]]:
    """Return the sorted names of the classes in ``folder``, their pictures, and a line for each file that is left out.

    A folder may hold ``train`` and ``test`` (or ``val``) with the classes in them; its pictures are already divided.

    Raises:
        FileError: ``folder`` is no folder, or has fewer than two sub-folders with pictures.
    """
    root = Path(folder)
    if not root.is_dir():
        what = "is a file" if root.exists() else "no such folder"
        raise FileError(folder, f"{what}; name the folder that holds a sub-folder of pictures for each class")
    parts = _parts(root)
    loose = [picture for part in dict.fromkeys((root, *(each for each, _ in parts))) for picture in _loose(part)]
    left_out = [f"{picture}: is in no class's folder" for picture in loose]
    names: dict[str, list[tuple[str, bool | None]]] = {}
    for part, is_test in parts:
        for each in _sub_folders(part):
            paths, others = _usable(each)
            left_out += others
            names.setdefault(each.name, []).extend((path, is_test) for path in paths)
    left_out += [f"{folder}: class {name!r} has no pictures" for name, found in names.items() if not found]
    classes = sorted(name for name, found in names.items() if found)
    if len(classes) < 2:
        raise FileError(folder, _why_too_few(root, classes, loose))
    found = [LabelledPicture(path, label, test) for label, name in enumerate(classes) for path, test in names[name]]
    return classes, found, left_out


def decode(pictures: Sequence[LabelledPicture], tell: Callable[[], None] = lambda: None) -> DecodedPictures:
    """Decode all ``pictures``, in threads.

    Args:
        pictures: the pictures.
        tell: called after each picture.
    """
    import_pillow()
    means: NDArray[np.float64] = np.zeros((len(pictures), _COLOUR))
    sizes = np.zeros(len(pictures))

    def measure(index: int) -> None:
        pixels = read_image(pictures[index].path, _COLOUR)
        means[index] = pixels.mean((1, 2), np.float64)
        sizes[index] = pixels.shape[1] * pixels.shape[2]

    found = survey(len(pictures), measure, lambda index: tell())
    damaged = dict(found.errors)
    whole = [index for index in range(len(pictures)) if index not in damaged]
    mean = tuple(round(float(value), 1) for value in means[whole].mean(0)) if whole else (0.0, 0.0, 0.0)
    return DecodedPictures(
        [pictures[index] for index in whole],
        [str(error) for error in damaged.values()],
        mean,
        float(sizes[whole].mean()) if whole else 0.0,
    )


def write_smaller(pictures: Sequence[LabelledPicture], targets: Sequence[str], side: int) -> None:
    """Write copies of ``pictures`` of ``side`` × ``side`` pixels to the PNG files ``targets``, in threads.

    Raises:
        FileError: a copy could not be written.
    """
    pillow = import_pillow()

    def write(index: int) -> None:
        pixels: Pixels = resize(read_image(pictures[index].path, _COLOUR), side, side)
        try:
            os.makedirs(os.path.dirname(targets[index]), exist_ok=True)
            pillow.fromarray(np.ascontiguousarray(pixels[::-1].transpose(1, 2, 0))).save(targets[index], format="PNG")
        except OSError as error:
            raise DataError(f"{targets[index]}: cannot be written: {error.strerror}") from None

    for _, error in survey(len(pictures), write).errors:
        raise error


def _parts(root: Path) -> list[tuple[Path, bool | None]]:
    """Return the folders that hold classes, and whether each is for tests; ``None``: the names do not say."""
    inner = _sub_folders(root)
    train = [each for each in inner if each.name.lower() in _TRAIN]
    test = [each for each in inner if each.name.lower() in _TEST]
    divided = len(train) == len(test) == 1 and len(inner) == 2 and all(map(_sub_folders, inner))
    return [(train[0], False), (test[0], True)] if divided else [(root, None)]


def _loose(folder: Path) -> list[Path]:
    """Return the pictures that lie in a folder itself, which is that of no class."""
    try:
        return sorted(path for path in folder.iterdir() if _is_loose(path))
    except OSError as error:
        raise FileError(folder, f"cannot be read: {error.strerror}") from None


def _is_loose(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".") and path.is_file()


def _why_too_few(root: Path, classes: Sequence[str], loose: Sequence[Path]) -> str:
    """Return why a folder does not have the pictures of two classes: what it holds, and how it must look."""
    if classes:
        has = f'only the sub-folder "{classes[0]}" has pictures'
    else:
        has = "no sub-folder has pictures" + ("" if loose else f" (known endings: {', '.join(ENDINGS)})")
    examples = ["1.jpg", "2.jpg"]
    if loose:
        names = ", ".join(path.name for path in loose[:_SHOWN])
        has = f"{plural(len(loose), 'picture')} ({names}{', …' * (len(loose) > _SHOWN)}) in no sub-folder, and {has}"
        examples = [loose[0].name, loose[-1].name]
    layout = f"{root}/cats/{examples[0]} and {root}/dogs/{examples[1]}"
    return f"{has}; make a sub-folder for each class, at least two, and put the pictures there: {layout}"


def _sub_folders(folder: Path) -> list[Path]:
    try:
        found = [each for each in folder.iterdir() if each.is_dir()]
    except OSError as error:
        raise FileError(folder, f"cannot be read: {error.strerror}") from None
    return sorted(each for each in found if not each.name.startswith((".", "__MACOSX")))


def _usable(folder: Path) -> tuple[list[str], list[str]]:
    """Return the pictures in a class's folder whose names a list can contain, and lines about the other files."""
    usable, left_out = [], []
    for picture in pictures_in(str(folder)):
        path = picture.file
        if os.path.basename(path).startswith("."):
            continue
        if _can_be_listed(path):
            usable.append(path)
        else:
            left_out.append(f"{path!a}: a list in UTF-8 cannot contain this name; rename the file or its folder")
    files = sum(path.is_file() and not path.name.startswith(".") for path in folder.rglob("*"))
    if others := files - len(usable) - len(left_out):
        left_out.append(f"{folder}: {plural(others, 'file')} without the ending of a picture")
    return usable, left_out


def _can_be_listed(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return path.splitlines() == [path.strip()]
