"""What computes: kernels on arrays, and generated ones that become machine code.

``ef.kernels.show`` shows the generated kernels that a call runs.
"""

from eagerflow.kernels.listing import Listing, show

__all__ = ["Listing", "show"]
