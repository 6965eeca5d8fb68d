"""Snapshots: the weights of a net and the state of its solver, in files that Caffe reads and writes, too.

The files are ``<snapshot_prefix>_iter_<N>.caffemodel`` and ``….solverstate``, or both with ``.h5`` under
``snapshot_format: HDF5``; N is the number of iterations. The state is a ``pb.SolverState`` whose history is separate,
as tensors of the update rule.
"""

from bpt.train.state.missing_weights import MissingWeights, WeightCoverage
from bpt.train.state.old_snapshots import of_run, remove_all_but
from bpt.train.state.prefix_lock import held_for
from bpt.train.state.preprocessing import write_preprocessing
from bpt.train.state.resuming import check_kind_of_state, find_newest, read_state, restore, verify
from bpt.train.state.weights import check_kind_of_weights, load_to_run, load_weights, save_weights, weight_files
from bpt.train.state.writing import average_path, check_names, name_after, state_path, violations, write

__all__ = [
    "MissingWeights", "WeightCoverage", "average_path", "check_kind_of_state", "check_kind_of_weights", "check_names",
    "find_newest", "held_for", "load_to_run", "load_weights", "name_after", "of_run", "read_state", "remove_all_but",
    "restore", "save_weights", "state_path", "verify", "violations", "weight_files", "write", "write_preprocessing",
]  # fmt: skip
