"""Reads fields that Caffe has replaced as the ones that replaced them, as Caffe does when it opens a file.

:mod:`v0` (2013) and :mod:`v1` (2014) are the old layers; :mod:`steps` runs them and all others in Caffe's order. Each
step changes a message and, with it, what is known of where its fields were written, so that errors that show later
still name the line of the old text.
"""

from bpt.config.proto.upgrade.upgrade_steps import upgrade_net, upgrade_solver
from bpt.config.proto.upgrade.written import Note

__all__ = ["Note", "upgrade_net", "upgrade_solver"]
