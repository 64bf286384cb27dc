"""`python -m commitrelay`."""

import sys

from commitrelay.cli import main

sys.exit(main())
