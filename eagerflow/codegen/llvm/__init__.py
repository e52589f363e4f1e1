"""Machine code through LLVM: intermediate code written as text, compiled by llvmlite."""
