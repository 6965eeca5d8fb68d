"""Reads fields that Caffe has replaced as the ones that replaced them, as Caffe does when it opens a file.

One file a step, in Caffe's order: :mod:`padding` and :mod:`v0` (2013), :mod:`transformation`, :mod:`v1` (2014),
:mod:`inputs`, :mod:`batch_norm`; :mod:`net` runs them. Each step changes a message and, with it, what is known of
where its fields were written, so that errors that show later still name the line of the old text.
"""

from bpt.proto.upgrade.net import upgrade_net
from bpt.proto.upgrade.note import Note
from bpt.proto.upgrade.solver_fields import upgrade_solver

__all__ = ["Note", "upgrade_net", "upgrade_solver"]
