"""CGDP: gradients are accumulated on the host while backward still runs (Le et al., 2018)."""
