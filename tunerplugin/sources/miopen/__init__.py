"""MIOpen: performance databases of AMD GPUs, and the spaces of its convolution solvers."""
