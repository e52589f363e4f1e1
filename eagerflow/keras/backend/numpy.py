"""``keras.ops.numpy`` on eagerflow: NumPy's functions with Keras's arguments and dtypes."""

from eagerflow.keras.backend.numpy_creation import *
from eagerflow.keras.backend.numpy_elementwise import *
from eagerflow.keras.backend.numpy_products import *
from eagerflow.keras.backend.numpy_reductions import *
from eagerflow.keras.backend.numpy_shapes import *
from eagerflow.keras.backend.numpy_unique import *
