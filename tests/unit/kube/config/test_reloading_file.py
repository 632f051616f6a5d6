from __future__ import annotations

import os

import pytest

from steersman.errors import ConfigError
from steersman.kube.config.reloading_file import ReloadingFile


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"one")
    return path


async def test_a_changed_file_is_seen_within_a_second(token, clock):
    file = ReloadingFile(token, clock, field="tokenFile")
    assert file.read() == b"one"
    token.write_bytes(b"second")
    assert file.read() == b"one"  # not looked at again yet
    await clock.advance(1.0)
    assert file.read() == b"second"


async def test_a_file_swapped_by_symlink_is_seen(tmp_path, clock):
    (tmp_path / "old").write_bytes(b"one")
    (tmp_path / "new").write_bytes(b"two")
    same = (tmp_path / "old").stat().st_mtime_ns
    os.utime(tmp_path / "new", ns=(same, same))
    link = tmp_path / "token"
    link.symlink_to("old")
    file = ReloadingFile(link, clock, field="tokenFile")
    assert file.read() == b"one"
    link.unlink()
    link.symlink_to("new")
    await clock.advance(1.0)
    assert file.read() == b"two"


async def test_a_change_that_leaves_no_trace_is_seen_after_a_minute(token, clock):
    file = ReloadingFile(token, clock, field="tokenFile")
    assert file.read() == b"one"
    status = token.stat()
    with token.open("r+b") as opened:
        opened.write(b"two")
    os.utime(token, ns=(status.st_atime_ns, status.st_mtime_ns))
    await clock.advance(59.0)
    assert file.read() == b"one"
    await clock.advance(1.0)
    assert file.read() == b"two"


def test_invalidate_reads_again_at_once(token, clock):
    file = ReloadingFile(token, clock, field="tokenFile")
    assert file.read() == b"one"
    token.write_bytes(b"two")
    file.invalidate()
    assert file.read() == b"two"


async def test_a_file_that_vanishes_for_a_moment_keeps_its_content(token, clock):
    file = ReloadingFile(token, clock, field="tokenFile")
    file.read()
    token.unlink()
    await clock.advance(61.0)
    assert file.read() == b"one"
    token.write_bytes(b"two")
    await clock.advance(1.0)
    assert file.read() == b"two"


def test_a_file_that_was_never_there_is_an_error_that_names_it(tmp_path, clock):
    file = ReloadingFile(tmp_path / "gone", clock, field="users.me.tokenFile", where="my.kubeconfig")
    with pytest.raises(ConfigError) as raised:
        file.read()
    assert str(raised.value).startswith(f"my.kubeconfig: users.me.tokenFile: cannot read {tmp_path / 'gone'}: No such")
