"""`python -m graphfw`."""

import sys

from graphfw.cli import main

sys.exit(main())
