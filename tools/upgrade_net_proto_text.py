#!/usr/bin/env python3
"""Convert a net from an old format of Caffe to today's format.

    tools/upgrade_net_proto_text.py old.prototxt new.prototxt

The tool upgrades the same things as Caffe's tool of this name:
  - layers { layer { name: "c" type: "conv" } }   the V0 format of 2013; a "padding" layer becomes the pad of the next
  - layers { name: "c" type: CONVOLUTION }        the V1 format of 2014; blobs_lr and weight_decay become param
  - scale, mean_file, crop_size, mirror           of V1 data layers; they become transform_param
  - input, input_shape, input_dim                 become a layer of type Input
  - param of a BatchNorm layer                    lr_mult and decay_mult become 0

bpt also reads old files without the upgrade; upgrade them to edit them. Comments are lost. A net in today's format
is written unchanged. Messages go to stderr, each with its place in the old text.

Exit status: 0 done; 1 written, but settings without meaning were dropped, or OUTPUT could not be written;
2 the command line or INPUT is wrong, or OUTPUT's folder is missing; then nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bpt.cli.tool import run_upgrade
from bpt.config.proto.rewrite import rewrite_net_text


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_upgrade(__file__, __doc__, "the net, a prototxt", "NetParameter text proto", rewrite_net_text, words)


if __name__ == "__main__":
    sys.exit(main())
