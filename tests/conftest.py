"""What all tests share: settings that must be there before numpy and jax are loaded."""

import collections
import contextlib
import os
import pathlib
import signal
import sys

import hypothesis
import pytest

from launch import run

# OpenBLAS reads it when it is loaded. Its threads fight over busy cores: an orthogonal
# initialiser then takes seconds, at random. Processes that tests start inherit all of this.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# The tolerances of the tests are for full float32 products, which GPUs and TPUs do not default to.
os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
# Compiling is most of what tests do. What is left out changes no test's result but in the last
# digits: XLA's own passes are those of every run.
run.compile_quickly()
# What was compiled is kept: a second run takes a quarter of the time of a first one.
cache = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
# A shell that starts tests in the background has them, and all that they start, ignore Ctrl-C;
# nohup does so with a terminal's end.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# On its import submitit sets up logging, which closes the handlers that there are. absl's would
# take along the stream that it was made for: in the middle of a test, the one that pytest reads.
with contextlib.suppress(ModuleNotFoundError):
  import submitit  # noqa: F401

# Figures are drawn without a screen.
os.environ["MPLBACKEND"] = "agg"

# A first call compiles, which no deadline allows for. CI tries the same examples every time.
hypothesis.settings.register_profile("attn", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("attn")


def pytest_collection_modifyitems(items):
  """Puts files of many slow tests first where several processes share the files.

  Left to the end, such a file keeps one process busy while the others have nothing to do.
  """
  if "PYTEST_XDIST_WORKER" in os.environ:
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
  """Lets go of a file's compiled programs: a process runs out of memory maps with those of all."""
  yield
  if "jax" in sys.modules:
    sys.modules["jax"].clear_caches()
