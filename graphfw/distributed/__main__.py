"""`python -m graphfw.distributed`."""

import sys

from graphfw.distributed.launch import main

if __name__ == "__main__":
    sys.exit(main())
