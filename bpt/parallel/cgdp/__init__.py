"""CGDP: gradients are accumulated on the host while backward still runs (Le et al., 2018).

Section 3.1 has the numbered steps of the exchange, section 3.2 the cost model (Eq. 1 and 2), and section 4 the chunks
of layers with their run-time search (section 4.2, Fig. 4).

Read the files in this order:

1. ``chunks.py``: the paper's rule for chunks, and the searches.
2. ``host_sum.py``: the accumulation on the host (section 3.1); ``chunk_areas.py``: the memory for it; ``exchange.py``:
   the exchange that calls both. ``sharded_host_sum.py`` and ``sharded_cgdp.py``: with a divided update.
3. ``cost_model.py``: predicted times (section 3.2).
4. ``calibration.py`` and ``layer_costs.py``: the measured costs that the model needs.
5. ``cut_net.py``, ``choice_file.py`` and ``tuner.py``: the chunks of a run, and their file.
"""
