"""Convert weights of torchvision's networks: the architecture as a deploy text, and its weights under Caffe's names.

Reading order: ``layer_stack`` (builds a text, and notes which tensors each layer takes), one file for each family
(``resnet``, ``vgg``, ``alexnet``, ``googlenet``), ``models`` (the names), ``state_dict`` (reads and checks a file of
PyTorch), ``input_scaling`` (mean, deviation and order of channels), ``torchvision_files`` (writes the files).
"""
