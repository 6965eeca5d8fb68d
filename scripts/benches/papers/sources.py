"""bpt's value of each quantity in the papers' value files: the function that a row's column "source" names.

Each takes the results of a run and the words behind its name. It returns ``None`` where the bench that measures the
value has left nothing, because it was left out or has failed. Each paper's are in a file of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from scripts.benches.papers import of_bptcnn, of_cgdp, of_hybrid, of_mpifc, of_staticlb
from scripts.benches.papers.found import Value

Source = Callable[..., Value | None]

SOURCES: dict[str, Source] = {
    source.__name__: source
    for source in (
        of_cgdp.cgdp_speedup,
        of_cgdp.cgdp_efficiency,
        of_cgdp.cgdp_images,
        of_cgdp.cgdp_long_run,
        of_cgdp.cgdp_exposed,
        of_cgdp.cgdp_phase,
        of_cgdp.cgdp_parameters,
        of_cgdp.cgdp_copy,
        of_cgdp.cgdp_accumulate,
        of_mpifc.mpifc_elements,
        of_mpifc.mpifc_update,
        of_mpifc.mpifc_work,
        of_mpifc.mpifc_accuracy,
        of_mpifc.mpifc_seconds,
        of_mpifc.mpifc_batch,
        of_staticlb.staticlb_parameters,
        of_staticlb.staticlb_speedup,
        of_staticlb.staticlb_epoch,
        of_staticlb.staticlb_accuracy,
        of_hybrid.hybrid_speedup,
        of_hybrid.hybrid_minutes,
        of_hybrid.hybrid_accuracy,
        of_hybrid.hybrid_least,
        of_bptcnn.bptcnn_figure,
        of_bptcnn.bptcnn_growth,
        of_bptcnn.bptcnn_falls,
        of_bptcnn.bptcnn_place,
        of_bptcnn.bptcnn_balance,
        of_bptcnn.bptcnn_accuracy,
        of_bptcnn.bptcnn_auc,
        of_bptcnn.bptcnn_passes,
    )
}
