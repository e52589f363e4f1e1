"""Machine code of the library, written by hand as LLVM's intermediate code."""
