#!/usr/bin/env python3
"""Write a net that is in an old format of Caffe in today's.

    tools/upgrade_net_proto_text.py old.prototxt new.prototxt

What is upgraded, as Caffe's tool of this name does it:
  - layers { layer { name: "c" type: "conv" } }   the V0 format of 2013; "padding" layers go into what they pad
  - layers { name: "c" type: CONVOLUTION }        the V1 format of 2014; blobs_lr and weight_decay become param
  - scale, mean_file, crop_size, mirror           of V1 data layers; they become transform_param
  - input, input_shape, input_dim                 become a layer of type Input
  - param of a BatchNorm layer                    lr_mult and decay_mult become 0

bpt reads such files as they are; upgrade them to edit them. Comments get lost. A net in today's format is
written as it is. What is said goes to stderr, each line with the place in the old text.

Exit status: 0 done; 1 written, but settings that had no meaning were dropped, or OUTPUT could not be written;
2 the command line or INPUT is wrong, or OUTPUT's folder is missing; nothing is written then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bpt.cli.tool import run_upgrade
from bpt.config.proto.rewrite import rewrite_net_text


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's); returns the exit status."""
    return run_upgrade(__file__, __doc__, "the net, a prototxt", "NetParameter text proto", rewrite_net_text, words)


if __name__ == "__main__":
    sys.exit(main())
