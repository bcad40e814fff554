"""``python bad_wire.py ONE OTHER SECONDS SHARE``: a wire that delays and loses frames, between two
links that it creates.

A frame sent into one link leaves the other one after some seconds, or is lost. This is a program
because not every kernel has such a queue (``netem``). It imports no module of this project, since
it runs in the namespace of the switch.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_FRAME = 1 << 16


def _end(name: str) -> int:
    number = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI)
    fcntl.ioctl(number, _TUNSETIFF, request)
    return number


def main(one: str, other: str, delay: float, loss: float) -> None:
    """Forward frames without end."""
    ends = (_end(one), _end(other))
    to = {ends[0]: ends[1], ends[1]: ends[0]}
    draw = random.Random(1)
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, end, frame = heapq.heappop(waiting)
            try:
                os.write(end, frame)
            except OSError:
                # The link is down.
                continue
        pause = waiting[0][0] - now if waiting else None
        for end in select.select(ends, (), (), pause)[0]:
            try:
                frame = os.read(end, _FRAME)
            except OSError:
                continue
            if draw.random() >= loss:
                number += 1
                heapq.heappush(waiting, (time.monotonic() + delay, number, to[end], frame))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
