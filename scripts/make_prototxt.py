"""Write the generated networks of ``prototxt/``.

    python -m scripts.make_prototxt

Run it from the root of the repository after a change in ``scripts/networks/``. The other networks of ``prototxt/``
are written by hand and not touched.
"""

from __future__ import annotations

from pathlib import Path

from scripts.networks import (
    bpt_cnn,
    caffe_examples,
    fcn,
    googlenet,
    lrcn,
    resattnet,
    resnet_cifar,
    resnet_imagenet,
    sigmoids,
    ssd,
    vgg,
)

FAMILIES = (googlenet, vgg, resnet_cifar, resnet_imagenet, bpt_cnn, resattnet, caffe_examples, sigmoids, fcn, lrcn, ssd)
ROOT = Path(__file__).parents[1] / "prototxt"


def generated() -> dict[str, str]:
    """Path under ``prototxt/`` → text, of all generated files."""
    return {path: text for family in FAMILIES for network in family.NETWORKS for path, text in network.files().items()}


def main() -> None:
    files = generated()
    for path, text in files.items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    print(f"{len(files)} files written under {ROOT}")


if __name__ == "__main__":
    main()
