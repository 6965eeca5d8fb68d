"""Fillers: how a parameter blob starts."""
def fill(tensor, filler, generator): tensor.fill_(filler.value)
