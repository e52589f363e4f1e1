"""What the processor reaches at most: multiply-adds on values in registers, on all threads asked.

python benchmarks/peak.py
"""

from eagerflow.profiling.machine import peak_gigaflops

if __name__ == "__main__":
    for count in (1, 2):
        print(f"{count} threads: {peak_gigaflops(count):.0f} GFLOP/s")
