"""Nets that compute: layers, kernels, fusion, fillers, and Net, a torch.nn.Module made of a graph."""
