"""`python -m syntony.benchmarks.demo`."""

import sys

from syntony.benchmarks.demo.story import main

sys.exit(main())
