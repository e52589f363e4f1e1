"""Runtime support for kernels: threads, buffers, machine code in memory and on disk."""
