"""What a run is to be: which nets, how they are spread, and what of a solver's text makes no sense."""
