"""The local pack: small real models on a CPU."""

import os

# ONNX Runtime's wheels send usage data and keep a device id in the user's cache unless this is set before they
# are imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
