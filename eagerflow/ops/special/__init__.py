"""Special functions of mathematical physics and statistics."""
