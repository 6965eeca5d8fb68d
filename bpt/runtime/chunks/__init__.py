"""Which layers' gradients travel together under ``exchange: CGDP``: measured, searched, kept."""
