"""A process that may hold Secrets leaves no core dump, and can still measure itself."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="core dumps are refused by means of Linux")

PROGRAM = """
import ctypes, os, resource, signal
from steersman.cli.core_dumps import keep_memory_private

resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
keep_memory_private()
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
assert ctypes.CDLL(None).prctl(3) == 0  # PR_GET_DUMPABLE
from prometheus_client import CollectorRegistry, ProcessCollector

registry = CollectorRegistry()
ProcessCollector(registry=registry)
assert registry.get_sample_value("process_resident_memory_bytes") > 0
assert registry.get_sample_value("process_open_fds") > 0
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGABRT)
_, status = os.waitpid(child, 0)
assert os.WTERMSIG(status) == signal.SIGABRT
assert not os.WCOREDUMP(status)
"""

FREED = """
import ctypes
from steersman.cli.core_dumps import keep_memory_private

keep_memory_private()
value = b"canary" * 1000
place, size = id(value) + 64, len(value) - 128
assert b"canary" in ctypes.string_at(place, size)
del value
assert b"canary" not in ctypes.string_at(place, size)
"""


def test_what_was_freed_is_overwritten(tmp_path):
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("only glibc overwrites what is freed")
    ended = subprocess.run([sys.executable, "-c", FREED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_no_core_dump_is_left_and_metrics_of_the_process_are_there(tmp_path):
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert list(tmp_path.iterdir()) == []
