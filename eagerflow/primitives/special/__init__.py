"""Special functions of real numbers in float64, for any array namespace."""
