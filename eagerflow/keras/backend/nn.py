"""``keras.ops.nn`` on eagerflow."""

from eagerflow.keras.backend.nn_activations import *
from eagerflow.keras.backend.nn_ctc import *
from eagerflow.keras.backend.nn_losses import *
from eagerflow.keras.backend.nn_windows import *
