"""A run on the ranks and devices that there are: nets, operators, communicators."""
