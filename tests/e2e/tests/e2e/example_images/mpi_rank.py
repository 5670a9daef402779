#!/usr/bin/python3
"""Stands in for programs of MPI: a rank brings its number to those who started it, and has to get the sum of all."""

import os
import socket

from peers import call, say

rank, size, host = int(os.environ["MPI_RANK"]), int(os.environ["MPI_SIZE"]), socket.gethostname()
hub = call(*os.environ["MPI_HUB"].split(":"))
say(hub, rank, host)
total = int(hub.readline())
assert total == sum(range(size)), total
print(f"Hello world from processor {host}, rank {rank} out of {size} processors", flush=True)
