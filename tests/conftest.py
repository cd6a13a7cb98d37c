"""Settings of the test run that must be in force before anything heavy is imported."""

import os

# Tests start several processes on few cores: one thread each, unless a test says otherwise.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tokenizers library warns when a process that used its threads is forked.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# No test reaches the network: models come from installed packages or are made on the spot.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Triton decides when it is imported whether kernels are compiled or run by its interpreter on the
# CPU, and torch may import it first. TRITON_INTERPRET=0 is for tests/gpu, where there is a device.
os.environ.setdefault("TRITON_INTERPRET", "1")
