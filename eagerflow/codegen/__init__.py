"""Code generation: regions, and their execution as NumPy steps, machine code or CUDA."""
