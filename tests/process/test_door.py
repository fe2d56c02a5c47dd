"""
A door with a name lets one process in, and gives out what it handed in by number.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from sandboxkit.process import NamedDoor

if TYPE_CHECKING:
    from pathlib import Path


def client(path: Path) -> socket.socket:
    """
    A connection to *path*, which may be longer than an address.
    """
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    directory = os.open(path.parent, os.O_PATH)
    try:
        found.connect(f"/proc/self/fd/{directory}/{path.name}")
    except OSError:
        found.close()
        raise
    finally:
        os.close(directory)
    return found


def hand_in(stream: socket.socket, *numbers: int) -> list[int]:
    """
    Makes listeners and hands them in by *numbers*; their ports.
    """
    ports = []
    for number in numbers:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.send_fds(stream, [struct.pack("!I", number)], [server.fileno()])
            ports.append(server.getsockname()[1])
    return ports


def test_listeners_come_by_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 30) / "door"
    path.parent.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    door = NamedDoor(str(path))
    try:
        with client(path) as stream:
            door.admit()
            assert door.take(1) is None
            ports = hand_in(stream, 7, 8, 9)
            for number, port in ((8, ports[1]), (7, ports[0])):
                fd = door.take(number)
                assert fd is not None
                with socket.socket(fileno=fd) as listener:
                    assert listener.getsockname() == ("127.0.0.1", port)
                assert door.take(number) is None
            socket.create_connection(("127.0.0.1", ports[2])).close()
    finally:
        door.close()
    with pytest.raises(ConnectionRefusedError):  # what nobody took is closed with it
        socket.create_connection(("127.0.0.1", ports[2])).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_nobody_else_gets_in(tmp_path: Path) -> None:
    path, other = tmp_path / "door", tmp_path / "other"
    door = NamedDoor(str(path))
    os.link(path, other)  # as a container has it mounted
    try:
        with pytest.raises(BlockingIOError):
            door.admit()
        with client(path):
            door.admit()
            assert not path.exists()
            with pytest.raises(ConnectionRefusedError):
                client(other)
    finally:
        door.close()


def test_a_door_that_is_closed_leaves_its_successor_alone(tmp_path: Path) -> None:
    path = tmp_path / "door"
    first = NamedDoor(str(path))
    with client(path):
        first.admit()
    second = NamedDoor(str(path))
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()
