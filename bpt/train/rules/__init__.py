"""Why a plan cannot be carried out, and what is set in it for nothing: the rules of all mechanisms, gathered."""
