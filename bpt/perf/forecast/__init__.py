"""How long an iteration of a plan takes on a cluster, what travels and what is held; and which plan takes least."""
