from __future__ import annotations

import socket
import subprocess
import sys

from steersman.testing.controlplane.processes import LOOPBACK, ReservedPort
from steersman.testing.controlplane.run_folder import RunFolder, write_private


def test_everything_written_is_readable_by_its_owner_only(tmp_path):
    run = RunFolder(tmp_path)
    path = run.write("pki/secret.key", "secret")
    assert path.read_text() == "secret"
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    run.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "config"
    write_private(path, "old")
    with path.open() as reader:
        write_private(path, b"new")
        assert reader.read() == "old"
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["config"]


def test_a_folder_in_use_is_left_alone(tmp_path):
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    assert first.path.is_dir()
    first.remove()
    second.remove()


def test_the_folder_of_a_killed_run_is_removed_by_the_next_one(tmp_path):
    program = (
        "import os, pathlib, signal; from steersman.testing.controlplane.run_folder import RunFolder\n"
        f"run = RunFolder(pathlib.Path({str(tmp_path)!r})); run.write('data', 'x')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    (abandoned,) = tmp_path.iterdir()
    run = RunFolder(tmp_path)
    assert not abandoned.exists()
    run.remove()


def test_a_promised_port_is_given_only_to_a_listener_that_shares_it():
    with ReservedPort() as port, socket.socket() as stranger, socket.socket() as program:
        assert stranger.connect_ex((LOOPBACK, port.number)) != 0
        stranger.close()
        program.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        program.bind((LOOPBACK, port.number))
        program.listen()
        with socket.create_connection((LOOPBACK, port.number)) as client:
            accepted, _ = program.accept()
            assert accepted.getpeername() == client.getsockname()
            accepted.close()


def test_a_port_in_use_by_a_stranger_cannot_be_promised_or_taken():
    with ReservedPort() as port, socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            stranger.bind((LOOPBACK, port.number))
        except OSError:
            return
    raise AssertionError(f"port {port.number} was given away twice")


def test_promised_ports_are_all_different():
    ports = [ReservedPort() for _ in range(50)]
    assert len({port.number for port in ports}) == 50
    for port in ports:
        port.release()
