"""Reads every packet of this host's interfaces until standard input ends. Argument: the bytes to count, in hexadecimal.

Prints `ready`, and at the end the number of bytes and how often they contained the wanted ones.
"""

from __future__ import annotations

import select
import socket
import sys

ALL_PROTOCOLS = 0x0003

wanted = bytes.fromhex(sys.argv[1])
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
packets.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), 256 << 20)
print("ready", flush=True)
seen = found = 0
while True:
    readable, _, _ = select.select([packets, sys.stdin], [], [])
    if packets in readable:
        packet, address = packets.recvfrom(1 << 17)
        if address[0] != "lo":
            seen += len(packet)
            found += packet.count(wanted)
    elif not sys.stdin.readline():
        break
print(f"seen {seen} found {found}", flush=True)
