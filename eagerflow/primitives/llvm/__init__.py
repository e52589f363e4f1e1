"""Machine code of the primitives, hand-written as LLVM IR."""
