"""Machine code of the primitives, written by hand as LLVM's intermediate code."""
