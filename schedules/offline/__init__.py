"""What a compiled GPU kernel uses, read without the GPU.

Registers, spills, shared memory and matrix instructions, from the vendors' own compilers.
"""
