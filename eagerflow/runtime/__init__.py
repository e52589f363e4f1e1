"""What kernels stand on: threads, buffers, machine code in memory and on disk."""
