"""Code generation: regions, and what runs them as NumPy's steps, machine code or CUDA."""
