"""RunPlan: what a run is to be, resolved once of a solver's text; and which nets it trains and tests."""
