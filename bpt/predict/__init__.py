"""How long things will take: costs of layers, devices, virtual clocks."""
