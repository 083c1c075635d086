"""`python -m hubmere.pipeline.capture`: see `job`."""

import sys

from hubmere.pipeline.capture.job import main

if __name__ == "__main__":
    sys.exit(main())
