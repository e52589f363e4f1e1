"""``python -m eagerflow.cli``."""

import sys

from eagerflow.cli import main

sys.exit(main())
