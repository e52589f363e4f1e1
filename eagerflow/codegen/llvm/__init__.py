"""Machine code through LLVM: IR written as text, compiled by llvmlite."""
