"""Upgrades of fields that Caffe has replaced, as Caffe makes them when it opens a file.

:mod:`v0` (2013) and :mod:`v1` (2014) are the old layers; :mod:`upgrade_steps` runs them and all others in Caffe's
order. Each step changes a message together with the places where its fields were written. So later errors still name
the line of the old text.
"""

from bpt.config.proto.upgrade.upgrade_steps import upgrade_net, upgrade_solver
from bpt.config.proto.upgrade.written import Note

__all__ = ["Note", "upgrade_net", "upgrade_solver"]
