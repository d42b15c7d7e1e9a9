"""What Linux says of processes: CPU, memory, and bytes on the wire."""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

_CPU_FIELDS = slice(11, 15)
"""Of /proc/PID/stat after the command's name: user and system time of the process and of its children that ended."""
_BYTES_ACKED_AND_RECEIVED = 120
"""Where two 64-bit numbers are in Linux's struct tcp_info."""


def tree_pids(root: int) -> list[int]:
    """The process and all that descend from it, now."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (told := _stat(int(entry))):
            parents[int(entry)] = int(told[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def tree_cpu_s(root: int) -> float:
    """CPU seconds of a process and its descendants so far."""
    return sum(sum(map(int, _stat(pid)[_CPU_FIELDS])) for pid in tree_pids(root)) / os.sysconf("SC_CLK_TCK")


def tree_memory_bytes(root: int, field: str = "VmHWM") -> int:
    """Resident memory of a process and its descendants: each one's peak, or with ``VmRSS`` now; shared pages count
    in each."""
    return sum(_memory_bytes(pid, field) for pid in tree_pids(root))


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _memory_bytes(pid: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def tcp_bytes(port: int) -> tuple[int, int]:
    """Bytes that this process has sent and received over its open connections to a port that it listens at."""
    sent = received = 0
    for entry in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                connection.getpeername()
                if connection.getsockname()[1] == port:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    acked, got = struct.unpack_from("=QQ", info, _BYTES_ACKED_AND_RECEIVED)
                    sent, received = sent + acked, received + got
        except OSError:
            continue  # no socket, or closed meanwhile
    return sent, received
