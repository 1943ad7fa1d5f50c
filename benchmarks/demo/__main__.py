"""`python -m benchmarks.demo`."""

import sys

from benchmarks.demo.story import main

sys.exit(main())
