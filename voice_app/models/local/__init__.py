"""The local pack: small real models on a CPU."""

import os

# Unless this is set before they are imported, ONNX Runtime's wheels keep a device id in the user's cache
# and send usage data.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
