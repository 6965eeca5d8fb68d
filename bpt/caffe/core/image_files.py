"""Image files for a Net, prepared as those that it was trained with: ``preprocess`` and ``classify``, bpt's own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from bpt.apps.arguments import Path, checked_count, checked_path
from bpt.apps.classify.classification import Classification, PictureClassifier
from bpt.apps.pictures.image_input import Images
from bpt.apps.pictures.named_pictures import pictures
from bpt.apps.pictures.picture_net import BATCH
from bpt.apps.pictures.prepared import prepare_files
from bpt.caffe.core.operator import BlobOperator
from bpt.config.plan.nets import NetPlan
from bpt.nn import net as core
from bpt.nn.pass_context import PassContext


class ImageNet(Protocol):
    """The part of a Net that image files need."""

    _plan: NetPlan
    _operator: BlobOperator

    @property
    def _weights(self) -> list[str]: ...
    @property
    def _core(self) -> core.Net: ...
    def _in_use(self, new_parameters: bool = False) -> AbstractContextManager[None]: ...


def preprocess(net: ImageNet, *images: Path, preprocessing: Path = "") -> Images:
    """Return what image files become as the net's input, as ``bpt classify`` prepares them.

    The data layer of the net's text says how or, if it has none, ``<snapshot_prefix>_preprocessing.prototxt`` beside
    the weights that were loaded last::

        net.forward(data=net.preprocess("cat.jpg"))

    Args:
        images: image files, folders of them, and lists (.txt).
        preprocessing: a record that says how, whatever the text says.

    Returns:
        (N, channels, height, width), float32.

    Raises:
        UserError: nothing says how images are prepared, or the settings do not fit the net.
        DataError: a file is missing or no image; it is named.
    """
    files = [checked_path(each, "an image") for each in images]
    return prepare_files(net._plan, net._weights, files, checked_path(preprocessing, "preprocessing"))


def classify(
    net: ImageNet, *images: Path, top: int = 5, labels: Path = "", preprocessing: Path = ""
) -> list[Classification]:
    """Return the classes with the highest scores for each image, as ``bpt classify`` does.

    An example::

        [answer] = net.classify("cat.jpg", labels="names.txt")
        print(answer.best[0].name, answer.best[0].value)

    It runs as in the phase TEST, with the net's parameters as they are now, beside the net, whose blobs stay.

    Args:
        images: image files, folders of them, and lists (.txt).
        top: so many classes of each.
        labels: a text with the names of the classes, one a line, from class 0 on; or an SSD label map (.prototxt).
        preprocessing: see ``preprocess``.

    Raises:
        UserError: as ``preprocess``; or the net gives no class scores.
    """
    asked = pictures([checked_path(each, "an image") for each in images])
    with net._in_use():
        classifier = PictureClassifier.of(
            net._plan,
            net._weights,
            net._operator.device,
            min(len(asked), BATCH),
            labels=checked_path(labels, "labels"),
            preprocessing=checked_path(preprocessing, "preprocessing"),
            shared=net._core.values_by_name(),
            context=PassContext(precision=net._core.context.precision),
        )
        return list(classifier.answers(asked, min(checked_count(top, "classify: top"), classifier.net.classes)))
