"""RunPlan: the typed description of a run, which ``resolve`` makes once from a solver's text."""
