"""`python -m voice_app` is the command `voice-app`."""

import sys

from voice_app.cli import main

sys.exit(main())
