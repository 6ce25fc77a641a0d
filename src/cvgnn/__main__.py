"""`python -m cvgnn` is the `cvgnn` command."""

import sys

from cvgnn.cli.main import main

sys.exit(main())
